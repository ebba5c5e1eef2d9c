"""Nothing that arkline sends to ZooKeeper is larger than ZooKeeper accepts, at the limit of a real server."""

import time
from collections.abc import Iterator

import pytest

from entrypoints.render.fleet_status import problem_text
from operations.fleet.health import overview
from operations.reasons import Reason
from operations.site import Site
from pipeline import codes
from pipeline.attempt import UNATTENDED
from pipeline.errors import Action, Remedy
from pipeline.outcome import StepFailed
from pipeline.principal import Role
from pipeline.records import Batch, Identifiers, StatusReport
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, FailureKind, JobState
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.proxy import Proxy
from tests.support import planting
from tests.support.errors import raises_code
from tests.support.operators import ANN
from tests.support.waits import RETRY
from tests.support.web import serving_board
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.connection.transaction import TRANSACTION_LIMIT, Create, Put, commit, send, settle, size_of
from zkstate.errors import Ambiguous, Stale, TooBig
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, creation, deletion, histories, jobs, record
from zkstate.record.batches import SUBMISSION_LIMIT, BatchMove

LONG = {"description": tuple("é" * 3000 for _ in range(10))}
"""Dublin Core fields of 60 kB: forty jobs have 2.4 MB of them."""


def test_a_transaction_of_the_largest_size_is_accepted_and_a_larger_one_is_not_sent(session: Session) -> None:
    room = TRANSACTION_LIMIT - size_of(session, [Create("/largest")])

    commit(session, [Create("/largest", b"x" * room)])
    with pytest.raises(TooBig, match=r"would change /largest .* above the limit of"):
        commit(session, [Put("/largest", b"x" * (room + 1))])

    assert len(session.get("/largest")[0]) == room


def test_the_counted_bytes_are_no_fewer_than_those_that_are_sent(session: Session) -> None:
    operations = [Create(f"/many-{number:04}", b"") for number in range(400)]
    transaction = session.zk.transaction()
    for operation in operations:
        transaction.create(operation.path, operation.data)
    sent = sum(len(bytes(request.serialize())) + 9 for request in transaction.operations)

    assert sent <= size_of(session, operations) <= 3 * sent


def test_forty_jobs_with_long_descriptions_are_created_in_several_transactions(session: Session) -> None:
    batch = planting.acquired_batch(session, dublin_core=LONG)

    states = list(
        creation.create_jobs(session, batch, planting.plan(40), planting.WORKING, "test", UNATTENDED)
    )

    assert len(states) > 2
    assert states[-1].status.created == 40
    created = batches.all_jobs(session, batch.bid)
    assert len(created) == 40
    assert jobs.load(session, created[-1]).configuration.dublin_core == LONG
    batches.finish_split(session, states[-1])


def test_an_object_that_is_too_large_for_the_record_fails_the_split_and_is_named(session: Session) -> None:
    batch = planting.acquired_batch(session)
    plan = planting.plan(2, local_id=tuple(f"{'x' * 3000}{number}" for number in range(200)))

    with pytest.raises(
        StepFailed, match=r"'0\.txt' has 60.,.* bytes of descriptions and identifiers"
    ) as caught:
        list(creation.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED))

    assert caught.value.kind is FailureKind.CONTENT
    batches.finish_split(session, batch)


@pytest.mark.parametrize("bytes_", [200_000, 1_200_000])
def test_a_submission_that_the_record_cannot_keep_is_refused_with_the_limit_and_the_remedy(
    session: Session, bytes_: int
) -> None:
    large = planting.submission(local_id=tuple("x" * 4000 for _ in range(bytes_ // 4000)))

    with pytest.raises(TooBig, match=rf"at most {SUBMISSION_LIMIT:,} bytes of a submission.*shorten"):
        batches.submit(session, large)

    assert session.children(paths.BATCHES) == []


def test_identifiers_that_the_record_cannot_keep_are_refused_once(session: Session) -> None:
    job = planting.acquire(session, planting.one_job(session))
    large = Identifiers(primary_id="ark:/99999/fk4abc", local_id=tuple("x" * 4000 for _ in range(300)))

    with pytest.raises(TooBig, match=paths.identifiers(job.jid)):
        ZooKeeperJobRecord(session, UNATTENDED).write_identifiers(job, large)


def test_a_long_history_of_a_job_is_kept_in_parts_and_loses_no_entry(session: Session) -> None:
    job = planting.one_job(session)
    entries = 0
    while len(job.history_parts) < 2:
        held = planting.acquire(session, job)
        message = f"{entries} {'é' * 2000}"
        job = record.hand_back(session, held, "worker", message=message, waits_for=RETRY)
        entries += 1

    loaded = jobs.load(session, job.jid)
    assert (loaded.history, loaded.history_parts) == (job.history, job.history_parts)
    assert loaded.history[0].state is JOB.initial
    assert [int(entry.message.split()[0]) for entry in loaded.history[1:]] == list(range(entries))
    assert len(session.get(paths.history(job.jid))[0]) <= histories.PART_BYTES
    failed = planting.apply_event(session, loaded, Event.FAIL)
    deletion.delete_job(session, failed, "ann")
    assert session.exists(paths.job(job.jid)) is None


def test_a_history_that_is_full_allows_no_further_tries_but_records_what_has_begun(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "PARTS", 1)
    monkeypatch.setattr(histories, "PART_BYTES", 500)
    job = planting.job_in(session, JobState.PROCESSING)
    failed = planting.apply_event(session, job, Event.FAIL)

    with pytest.raises(TooBig, match=r"delete it, and submit its content again"):
        planting.apply_event(session, failed, Event.RESUME)

    assert len(failed.history_parts) == 1
    assert jobs.load(session, job.jid).history == failed.history


def test_the_history_of_a_batch_is_kept_in_parts_and_goes_with_the_batch(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "PART_BYTES", 300)
    batch = planting.batch_in(session, BatchState.FAILED)

    assert batch.history_parts
    assert batches.load(session, batch.bid).history == batch.history
    deleted = planting.apply_batch_event(session, batch, Event.DELETE)
    deletion.remove_batch(session, deleted)
    assert session.children(paths.BATCHES) == []


def test_the_report_of_70000_jobs_is_kept_in_parts(session: Session) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    names = tuple(f"jid{number:010d}" for number in range(70_000))
    first = StatusReport(failed_jobs=names[:25_000], successful_jobs=names[25_000:])
    second = StatusReport(failed_jobs=names[:15_000], successful_jobs=names[15_000:])

    batch = _reported(session, batch, first)
    assert batches.whole_report(session, batches.load(session, batch.bid)) == first
    batch = planting.apply_batch_event(session, batch, Event.UPDATE_REPORT)
    _reported(session, batch, second)

    after = batches.load(session, batch.bid)
    assert batches.whole_report(session, after) == second
    assert len(session.get(paths.status_report(batch.bid))[0]) < TRANSACTION_LIMIT / 2
    assert len(session.children(paths.report_parts(batch.bid))) == 12


def _reported(session: Session, batch: Batch, report: StatusReport) -> Batch:
    held = batches.acquire(session, record.ticket(batch), "worker")
    return batches.move(session, held, BatchMove(Event.FAIL, "worker", report=report))


def test_a_reporting_worker_that_lost_its_lock_writes_no_part(session: Session) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    zombie = batches.acquire(session, record.ticket(batch), "zombie")
    session.zk.delete(paths.batch_lock(batch.bid))
    record.redispatch(session, batches.load(session, batch.bid), lost=True)
    names = tuple(f"jid{number:010d}" for number in range(2 * batches.PART_JOBS))

    with pytest.raises(Stale):
        batches.move(session, zombie, BatchMove(Event.FAIL, "zombie", report=StatusReport(failed_jobs=names)))

    assert session.children(paths.report_parts(batch.bid)) == []


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper_servers.Server]:
    """A ZooKeeper whose operators made its limit smaller than arkline's."""
    with zookeeper_servers.running(tmp_path_factory.mktemp("small"), max_buffer=100_000) as server:
        yield server


def test_a_transaction_between_the_servers_limit_and_ours_is_no_outage_and_names_the_limit(
    settings: Settings, small_server: zookeeper_servers.Server
) -> None:
    with connect(settings.model_copy(update={"zk_hosts": small_server.hosts})) as own:
        commit(own, [Create("/most", b"x" * 90_000)])
        began = time.monotonic()

        with raises_code(
            codes.SERVER_LIMIT, match=r"on a request of 200,.* bytes.*-Djute\.maxbuffer=1048575"
        ):
            commit(own, [Create("/larger", b"x" * 200_000)])

        assert time.monotonic() - began < own.answer_timeout / 2
        assert own.exists("/larger") is None


def test_the_status_names_the_limit_of_the_server_before_a_job_meets_it(
    settings: Settings, small_server: zookeeper_servers.Server, session: Session
) -> None:
    small = settings.model_copy(update={"zk_hosts": small_server.hosts})
    with connect(small) as own:
        health = overview(Site(small, own), ANN).health

    (text,) = [problem_text(each) for each in health.problems if each.reason is Reason.RECORD_LIMIT]
    assert text.startswith(f"ZooKeeper at {small_server.hosts} accepts no change of 524,288 bytes")
    assert Remedy(Action.RAISE_LIMIT) in health.remedies
    usual = overview(Site(settings, session), ANN).health
    assert Reason.RECORD_LIMIT not in {each.reason for each in usual.problems}


def test_a_request_that_is_larger_than_the_servers_accept_names_the_limit(
    settings: Settings, small_server: zookeeper_servers.Server
) -> None:
    small = settings.model_copy(update={"zk_hosts": small_server.hosts, "zk_root": "/web"})
    with serving_board(small) as web:
        operator = web.caller(Role.OPERATOR)
        long = {"description": LONG["description"][:1] * 19}  # 114 kB
        deposit = {"profile": "demo", "payload_url": "https://example.org/a.txt", "dublin_core": long}

        answer = operator.post("/v1/batches", deposit)

        assert (answer.status_code, answer.json()["code"]) == (507, "server-limit")
        assert "jute.maxbuffer" in answer.json()["detail"]
        assert "Retry-After" not in answer.headers
        assert "bid0" not in operator.get("/v1/batches").text


def test_an_answer_that_was_lost_is_not_taken_for_a_limit(shaky: Session, zookeeper_proxy: Proxy) -> None:
    zookeeper_proxy.swallow()
    sent = send(shaky, [Create("/large", b"x" * 200_000)])
    assert zookeeper_proxy.swallowed.wait(30)
    zookeeper_proxy.cut()

    with pytest.raises(Ambiguous):
        settle(shaky, sent)
