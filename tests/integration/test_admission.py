"""Limits at the door and at the split: how many jobs, objects, bytes and recipients are accepted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from entrypoints.render.explanation import text
from operations.deposits.submission import submit
from operations.fleet.health import overview, record_memory
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline import codes
from pipeline.attempt import UNATTENDED
from pipeline.codes import ErrorKind
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.outcome import StepFailed, WaitKind
from pipeline.profiles.profile import ProfileLimits, Profiles, with_site_limits
from pipeline.records import BatchStatus, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind
from tasks.app import make_context
from tasks.batch import SPLIT, check_room
from tasks.worker_context import WorkerContext
from tests.servers import zookeeper
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.errors import raises_code
from tests.support.manifests import CONTAINERS, manifest
from tests.support.operators import ANN
from zkstate.connection.session import Session, connect
from zkstate.queue import fairness, listings
from zkstate.record import batches, deletion, jobs, record


def limited(settings: Settings, **changes: int) -> Settings:
    return settings.model_copy(update=changes)


def submitted(session: Session, settings: Settings, **changes: object) -> str:
    return submit(Site(settings, session), ANN, planting.submission(**changes)).bid


def test_a_full_record_accepts_no_submission_and_says_who_can_raise_what(
    session: Session, settings: Settings
) -> None:
    bid = submitted(session, settings, idempotency_key="thesis")
    planting.split_batch(session, 3)
    full = limited(settings, record_jobs=3)

    with raises_code(
        codes.RECORD_FULL, match="has 3 jobs, and ARKLINE_RECORD_JOBS is 3: submit again"
    ) as refused:
        submitted(session, full)

    assert refused.value.error_kind is ErrorKind.UNREACHABLE
    assert listings.all_batches(session) == [bid, "bid0000000002"]
    assert submitted(session, full, idempotency_key="thesis") == bid
    assert submitted(session, limited(settings, record_jobs=0)) == "bid0000000003"


def test_a_submission_names_a_limited_number_of_recipients(session: Session, settings: Settings) -> None:
    addresses = tuple(f"a{number}@example.org" for number in range(3))

    with pytest.raises(UsageRefused, match=r"names 3 mail addresses .* 2 are accepted.*ARKLINE_RECIPIENTS"):
        submitted(session, limited(settings, recipients=2), notification=addresses)

    assert submitted(session, limited(settings, recipients=3), notification=addresses)


@pytest.mark.parametrize("mark", [",", ";", " ,\n"])
def test_recipients_are_counted_by_address_and_not_by_entry(
    session: Session, settings: Settings, mark: str
) -> None:
    joined = mark.join(f"a{number}@example.org" for number in range(3))

    with pytest.raises(UsageRefused, match=r"names 3 mail addresses"):
        submitted(session, limited(settings, recipients=2), notification=(joined,))


@pytest.mark.parametrize("mark", [",", ";", " , "])
def test_an_entry_of_several_recipients_is_refused(session: Session, settings: Settings, mark: str) -> None:
    with pytest.raises(UsageRefused, match="is several mail addresses: name each by itself"):
        submitted(session, settings, notification=(f"a@example.org{mark}b@example.org",))


def test_a_profile_may_accept_more_recipients_than_the_site(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    text = (settings.profiles / "demo.yaml").read_text()
    (tmp_path / "demo.yaml").write_text(f"{text}\nlimits:\n  recipients: 3\n")
    settings = settings.model_copy(update={"profiles": tmp_path})
    addresses = tuple(f"a{number}@example.org" for number in range(4))

    assert submitted(session, limited(settings, recipients=2), notification=addresses[:3])
    with pytest.raises(UsageRefused, match=r"4 mail addresses .* 3 are accepted.*limits\.recipients"):
        submitted(session, limited(settings, recipients=2), notification=addresses)


@pytest.mark.parametrize(
    ("changes", "jobs_of_batch", "kind", "said"),
    [
        ({"record_jobs": 4}, 5, FailureKind.CONTENT, r"5 objects.*ARKLINE_RECORD_JOBS"),
        ({"live_jobs": 4}, 5, FailureKind.CONTENT, r"may have 4 jobs that have not ended.*limits\.live_jobs"),
        ({"live_jobs": 4}, 3, FailureKind.TRANSIENT, r"demo has 2 jobs .*limits\.live_jobs"),
    ],
)
def test_a_batch_waits_for_room_or_is_refused_if_it_never_fits(
    session: Session,
    settings: Settings,
    changes: dict[str, int],
    jobs_of_batch: int,
    kind: FailureKind,
    said: str,
) -> None:
    planting.split_batch(session, 2)
    batch = planting.acquired_batch(session)
    here = limited(settings, **changes)
    profile = with_site_limits(Profiles(settings.profiles).get("demo"), here)

    with pytest.raises(StepFailed, match=said) as failure:
        check_room(session, here, profile, batch, jobs_of_batch)

    assert failure.value.kind is kind
    check_room(session, here, profile, batch, 2)


def live(session: Session, collection: str) -> int:
    return fairness.live_jobs(session, lambda party: party.collection == collection)


def test_a_submitter_has_one_limit_for_all_its_collections(session: Session, settings: Settings) -> None:
    here = limited(settings, submitter_jobs=4)
    profile = with_site_limits(Profiles(settings.profiles).get("demo"), here)
    earlier = planting.acquired_batch(session, owner="token:ada", profile_name="maps")
    earlier = planting.create_jobs(session, earlier, planting.plan(2), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, earlier)
    adas = planting.acquired_batch(session, owner="token:ada")
    eves = planting.acquired_batch(session, owner="token:eve")

    with pytest.raises(StepFailed, match=r"token:ada has 2 jobs .*ARKLINE_SUBMITTER_JOBS") as waits:
        check_room(session, here, profile, adas, 3)
    with pytest.raises(StepFailed, match=r"5 objects.*ARKLINE_SUBMITTER_JOBS") as never:
        check_room(session, here, profile, eves, 5)

    assert (waits.value.kind, never.value.kind) == (FailureKind.TRANSIENT, FailureKind.CONTENT)
    check_room(session, here, profile, adas, 2)
    check_room(session, here, profile, eves, 4)


def test_ended_jobs_are_not_live(session: Session) -> None:
    _, (first, _) = planting.split_batch(session, 2)
    planting.split_batch(session, 1)
    assert (live(session, "demo"), listings.recorded(session)) == (3, 3)

    planting.apply_event(session, jobs.load(session, first), Event.FAIL)

    assert (live(session, "demo"), listings.recorded(session)) == (2, 3)
    assert live(session, "other") == 0


def test_the_profile_replaces_the_limits_of_the_site(settings: Settings) -> None:
    demo = Profiles(settings.profiles).get("demo")
    own = demo.model_copy(update={"limits": ProfileLimits(batch_jobs=7)})
    here = limited(settings, batch_jobs=2, object_bytes=50, live_jobs=9)

    limits = with_site_limits(own, here).limits

    assert (limits.batch_jobs, limits.object_bytes, limits.live_jobs) == (7, 50, 9)


def containers(number: int) -> bytes:
    rows = (f"http://x.edu/{row}.zip | | | | | {row}.zip" for row in range(number))
    return manifest(*rows, profile=CONTAINERS)


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(limited(settings, batch_jobs=2))
    yield opened
    opened.drop_session()


def test_a_batch_above_the_limit_of_the_site_fails_with_the_limit_and_its_name(
    session: Session, context: WorkerContext
) -> None:
    with HttpSource() as source:
        url = source.put("/batch.checkm", containers(3))
        given = planting.submission(payload_url=url, type=SubmissionType.CONTAINER_BATCH_MANIFEST)
        bid = batches.submit(session, given)
        work_on(context, record.ticket(batches.load(session, bid)), SPLIT)

    after = batches.load(session, bid)
    assert after.status.status is BatchState.REPORTING
    assert "more than 2 rows" in after.status.message
    assert "limits.batch_jobs" in after.status.message
    assert batches.all_jobs(session, bid) == []


def split(session: Session, settings: Settings, bid: str) -> BatchStatus:
    opened = make_context(settings)
    try:
        work_on(opened, record.ticket(batches.load(session, bid)), SPLIT)
    finally:
        opened.drop_session()
    return batches.load(session, bid).status


def fail_and_remove(session: Session, bid: str, jids: Sequence[str]) -> None:
    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    failed = planting.apply_batch_event(session, reporting, Event.FAIL)
    deletion.remove_batch(session, planting.apply_batch_event(session, failed, Event.DELETE))


def test_a_full_record_pauses_the_split_until_batches_leave_and_says_so(
    session: Session, settings: Settings
) -> None:
    older, jids = planting.split_batch(session, 2)
    full = limited(settings, record_jobs=2)
    bid = batches.submit(session, planting.submission())

    waits = split(session, full, bid)

    assert waits.waits_for is not None
    assert (waits.created, waits.tries, waits.waits_for.kind) == (0, 0, WaitKind.RECORD)
    facts, health = why(Site(full, session), ANN, bid), overview(Site(full, session), ANN).health
    assert Remedy(Action.CLEAN_UP) in facts.remedies
    assert "has 2 jobs, and 1 more would exceed ARKLINE_RECORD_JOBS (2)" in text(facts)
    assert (Reason.RECORD_FULL, "2") in [(problem.reason, problem.waits_for) for problem in health.problems]

    fail_and_remove(session, older, jids)

    assert split(session, full, bid).created == 1


def test_a_zookeeper_with_a_small_heap_is_full_with_fewer_jobs_than_the_setting(
    settings: Settings, tmp_path: Path
) -> None:
    with zookeeper.running(tmp_path, heap_mb=32) as server:
        here = settings.model_copy(update={"zk_hosts": server.hosts})
        with connect(here) as session:
            memory = record_memory(Site(here, session))
            assert 0 < memory.accepted_jobs < 2_000
            planting.split_batch(session, memory.accepted_jobs)

            with raises_code(codes.RECORD_FULL, match=r"the maximum for ZooKeeper's heap of \d+ MB is 1,\d+"):
                submitted(session, here)

            assert record_memory(Site(here, session)).full
            assert (memory.znodes or 0) < (record_memory(Site(here, session)).znodes or 0)
