"""`arkline repair`: a record that cannot be read is replaced by a readable one, and frees what it holds."""

import json
from collections.abc import Iterator

import pytest

from operations.jobs.batch_view import report
from operations.site import Site
from operations.verbs import bulk
from operations.verbs.verbs import act, repair
from operations.why.why import why
from pipeline.attempt import UNATTENDED
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.outcome import content
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, FailureKind, IllegalTransition, JobState
from tests.support import planting
from tests.support.operators import ANN, downloading_job
from tests.support.waits import RETRY
from zkstate import paths
from zkstate.care import audit
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing, RecordOfMerritt
from zkstate.queue import queue
from zkstate.record import batches, jobs, record, space
from zkstate.record.jobs import JobMove

JOB_NODES = (
    paths.job_bid,
    paths.configuration,
    paths.identifiers,
    paths.job_status,
    paths.priority,
    paths.space_needed,
    paths.history,
)
NEEDED = (paths.configuration, paths.identifiers, paths.job_status, paths.space_needed, paths.history)
"""Nodes without which a job cannot be read."""

DAMAGE = (
    b"",
    b"no JSON",
    b"\xff\xfe",
    b'{"status":"downloading","delay":null}',
    b"[1,2]",
    b"-7",
    b"\xc2\xb2",
)
LASTING = {paths.configuration, paths.identifiers}
"""Nodes whose damage may have cost a digest or an ARK: the content has to be submitted again."""


def is_damage(path: str, data: bytes) -> bool:
    """Whether these bytes are damage there: an empty number is 0, and identifiers may have unknown fields."""
    readable = {"space_needed": data == b"", "identifiers": data.startswith(b"{")}
    return not readable.get(path.rpartition("/")[2], False)


@pytest.mark.parametrize("data", DAMAGE)
@pytest.mark.parametrize("node", NEEDED, ids=lambda node: node("").rpartition("/")[2])
def test_a_damaged_job_ends_as_failed_and_frees_all_it_holds(
    session: Session, site: Site, node: object, data: bytes
) -> None:
    job = downloading_job(session, site.settings)
    planting.acquire(session, job)
    path = node(job.jid)  # type: ignore[operator]
    if not is_damage(path, data):
        pytest.skip("no damage")
    session.zk.set(path, data)

    result = repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid)
    assert (result.was, result.now, after.status.status) == ("unreadable", "failed", JobState.FAILED)
    assert queue.counts(session)[JobState.DOWNLOADING] == 0
    assert session.exists(paths.job_lock(job.jid)) is None
    assert (space.reservation_of(session, job.jid), space.promised(session).bytes) == (None, 0)
    damaged = next(entry.damaged for entry in after.history if entry.damaged)
    assert [(found.path, found.size) for found in damaged] == [(path, len(data))]
    assert after.history[-1].event is Event.FAIL
    assert after.configuration.working_dir == job.configuration.working_dir
    assert after.status.kind is (FailureKind.CONTENT if node in LASTING else FailureKind.SYSTEM)


def test_a_damaged_job_that_is_stored_and_recorded_completes_and_its_remark_says_what_was_damaged(
    session: Session, site: Site
) -> None:
    job = planting.job_in(session, JobState.NOTIFY)
    session.zk.set(paths.identifiers(job.jid), b"{")

    result = repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid)
    assert (result.now, after.status.status, after.status.kind) == ("completed", JobState.COMPLETED, None)
    assert "may not have been notified" in after.status.remark
    assert "the identifiers of this object in the record was damaged" in after.status.remark


@pytest.mark.parametrize("node", JOB_NODES, ids=lambda node: node("").rpartition("/")[2])
def test_a_missing_znode_is_created(session: Session, site: Site, node: object) -> None:
    job = planting.job_in(session, JobState.PROCESSING)
    session.zk.delete(node(job.jid))  # type: ignore[operator]

    repair(site, ANN, job.jid)

    assert jobs.load(session, job.jid).status.status is JobState.FAILED


def test_a_job_of_which_nothing_can_be_read_ends_and_its_batch_is_reported(
    session: Session, site: Site
) -> None:
    job = downloading_job(session, site.settings)
    for node in (*JOB_NODES, paths.reservation):
        session.zk.set(node(job.jid), b"\x00\xff damaged")

    repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid)
    assert (after.bid, after.status.status, after.priority) == (job.bid, JobState.FAILED, job.priority)
    assert (space.reservations(session), space.promised(session).bytes) == ({}, 0)
    assert batches.load(session, job.bid).status.status is BatchState.REPORTING
    (reported,) = report(site, ANN, job.bid).failed
    assert "of this object in the record was damaged" in reported.message
    act(site, ANN, job.jid, Event.DELETE)
    with pytest.raises(Missing):
        jobs.load(session, job.jid)


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.DELETED])
def test_a_job_without_its_status_is_in_the_state_of_its_queue_and_begins_again(
    session: Session, site: Site, state: JobState
) -> None:
    job = planting.job_in(session, state)
    session.zk.set(paths.job_status(job.jid), b"")

    repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid)
    stays = state in (JobState.COMPLETED, JobState.FAILED, JobState.HELD)
    ended = JobState.COMPLETED if JOB.facts[state].recorded else JobState.FAILED
    assert after.status.status is (state if stays else ended)
    assert after.status.last_successful_status is None
    assert after.status.epoch > job.status.epoch
    if after.status.status is JobState.FAILED and after.status.kind is FailureKind.SYSTEM:
        assert act(site, ANN, job.jid, Event.RESUME).now == JobState.PENDING


def test_a_job_whose_status_can_be_read_is_resumed_where_it_failed(session: Session, site: Site) -> None:
    _, (jid, _) = planting.split_batch(session, 2)
    job = jobs.load(session, jid)
    for event in (Event.ACQUIRE, *[Event.SUCCEED] * 4):
        job = planting.apply_event(session, job, event)
    session.zk.set(paths.space_needed(job.jid), b"{")
    repair(site, ANN, job.jid)

    assert act(site, ANN, job.jid, Event.RESUME).now == JobState.RECORDING


def test_a_job_without_its_configuration_has_that_of_its_submission(session: Session, site: Site) -> None:
    job = planting.one_job(session)
    session.zk.set(paths.configuration(job.jid), job.configuration.model_dump_json().encode()[:-2])

    repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid).configuration
    submission = batches.load(session, job.bid).submission
    assert (after.profile_name, after.submitter) == (submission.profile_name, submission.submitter)
    assert after.payload_url == submission.payload_url  # of a file: the batch has no other object


def test_a_job_of_a_manifest_without_its_configuration_has_no_address(session: Session, site: Site) -> None:
    several = {"type": SubmissionType.BATCH_MANIFEST}
    _, (jid,) = planting.split_batch_of(session, several, 1, planting.WORKING)
    session.zk.set(paths.configuration(jid), b"{")

    repair(site, ANN, jid)

    assert jobs.load(session, jid).configuration.payload_url == "(not readable)"


def test_a_repaired_failure_keeps_its_reason(session: Session, site: Site, settings: Settings) -> None:
    job = downloading_job(session, settings)
    reason = JobMove(Event.FAIL, "w", message="the digest differs", kind=FailureKind.CONTENT)
    failed = jobs.move(session, planting.acquire(session, job), reason)
    session.zk.set(paths.job_status(failed.jid), b"no JSON")

    repair(site, ANN, failed.jid)

    after = jobs.load(session, failed.jid).status
    assert (after.status, after.kind, after.message) == (
        JobState.FAILED,
        FailureKind.CONTENT,
        "the digest differs",
    )


def test_a_job_without_its_configuration_is_not_resumed(session: Session, site: Site) -> None:
    job = planting.job_in(session, JobState.RECORDING)
    session.zk.set(paths.configuration(job.jid), b"{")
    repair(site, ANN, job.jid)

    with pytest.raises(IllegalTransition):
        act(site, ANN, job.jid, Event.RESUME)


def test_a_worker_that_holds_the_job_loses_it(session: Session, site: Site) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))
    session.zk.set(paths.space_needed(held.jid), "²".encode())

    repair(site, ANN, held.jid)

    with pytest.raises(Exception, match=r"has changed|is gone"):
        jobs.move(session, held, JobMove(Event.SUCCEED, "worker"))


def test_a_repaired_job_that_waited_is_not_listed_as_waiting(session: Session, site: Site) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))
    record.hand_back(session, held, "worker", delay=60, waits_for=RETRY)
    session.zk.set(paths.space_needed(held.jid), "²".encode())

    repair(site, ANN, held.jid)

    assert audit.audit(session) == ()


def test_a_record_that_can_be_read_is_not_repaired(session: Session, site: Site) -> None:
    job = planting.one_job(session)
    before = planting.tree(session)

    for name in (job.jid, job.bid):
        with pytest.raises(UsageRefused, match=f"every znode of {name} can be read"):
            repair(site, ANN, name)

    assert planting.tree(session) == before


def test_a_long_history_with_a_damaged_part_keeps_the_others(
    session: Session, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkstate.record.histories.PART_BYTES", 300)
    job = planting.job_in(session, JobState.RECORDING)
    parts = sorted(session.children(paths.history(job.jid)))
    assert len(parts) > 1
    session.zk.set(f"{paths.history(job.jid)}/{parts[1]}", b"damaged")

    repair(site, ANN, job.jid)

    after = jobs.load(session, job.jid)
    assert after.history[0].state is JobState.PENDING
    assert after.status.status is JobState.FAILED


def test_why_names_the_znode_and_the_verb_for_the_job_and_for_its_batch(
    session: Session, settings: Settings
) -> None:
    job = planting.one_job(session)
    whole, _ = session.get(paths.job_status(job.jid))
    session.zk.set(paths.job_status(job.jid), b"{")

    of_job, of_batch = why(Site(settings, session), ANN, job.jid), why(Site(settings, session), ANN, job.bid)

    for found in (of_job, of_batch.first):
        assert found is not None
        assert paths.job_status(job.jid) in found.message
    for found in (of_job, of_batch):
        assert found.remedies == (Remedy(Action.REPAIR, job.jid),)
    session.zk.set(paths.job_status(job.jid), whole)


def test_a_verb_on_a_damaged_job_names_the_repair(session: Session, site: Site) -> None:
    job = planting.one_job(session)
    whole, _ = session.get(paths.job_status(job.jid))
    session.zk.set(paths.job_status(job.jid), b"{")

    for event in (Event.FAIL, Event.RESUME, Event.DELETE):
        with pytest.raises(Corrupt) as refused:
            act(site, ANN, job.jid, event)
        assert refused.value.remedies == (Remedy(Action.REPAIR, job.jid),)
    session.zk.set(paths.job_status(job.jid), whole)


def test_cancel_repairs_the_damaged_jobs_of_the_batch(session: Session, site: Site) -> None:
    bid, jids = planting.split_batch(session, 3)
    session.zk.set(paths.job_status(jids[1]), b"{")

    outcome = bulk.cancel(site, ANN, bid)

    assert (len(outcome.done), outcome.refused) == (3, ())
    assert {jobs.load(session, jid).status.status for jid in jids} == {JobState.FAILED}
    assert batches.load(session, bid).status.status is BatchState.REPORTING


BATCH_NODES = (
    paths.submission,
    paths.batch_status,
    paths.batch_history,
    paths.status_report,
    paths.profile_snapshot,
)
BATCH_STATES = [state for state in BatchState if state is not BatchState.DELETED]


@pytest.mark.parametrize("state", BATCH_STATES)
@pytest.mark.parametrize("node", BATCH_NODES, ids=lambda node: node("").rpartition("/")[2])
def test_a_damaged_batch_can_be_read_again_and_keeps_its_state(
    session: Session, site: Site, node: object, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    path = node(batch.bid)  # type: ignore[operator]
    if session.exists(path) is None:
        session.ensure_node(path)
    session.zk.set(path, b"{damaged")

    repair(site, ANN, batch.bid)

    after = batches.load(session, batch.bid)
    unsplit = state in (BatchState.PENDING, BatchState.HELD) and node is paths.submission
    assert after.status.status is (BatchState.REPORTING if unsplit else state)
    assert after.submission.profile_name in ("demo", "(not readable)")
    assert any(entry.damaged for entry in after.history)
    batches.profile_snapshot(session, batch.bid)


def test_a_batch_that_may_lack_objects_is_reported_as_failed(session: Session, settings: Settings) -> None:
    batch = planting.acquired_batch(session)
    batch = planting.create_jobs(session, batch, planting.plan(2), planting.WORKING, "test", UNATTENDED)
    session.zk.delete(paths.batch_lock(batch.bid))
    session.zk.set(paths.batch_status(batch.bid), b"{")
    site = Site(settings, session)

    repair(site, ANN, batch.bid)

    for jid in batches.all_jobs(session, batch.bid):
        planting.complete(session, jobs.load(session, jid))
    assert batches.finish_if_ended(session, batch.bid, "test") is not None
    composed = report(Site(settings, session), ANN, batch.bid)
    assert composed.status is BatchState.FAILED
    assert "objects without a job may be missing" in composed.message


def test_an_unreadable_reservation_stops_no_other_job(session: Session, site: Site) -> None:
    damaged, other = (downloading_job(session, site.settings) for _ in range(2))
    session.zk.set(paths.reservation(damaged.jid), b"\xff")

    assert space.reservations(session) == {other.jid: 700}
    repair(site, ANN, damaged.jid)

    assert space.promised(session).bytes == 700


def test_a_content_fault_is_no_damage(session: Session, site: Site) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL, content("x").kind)

    with pytest.raises(UsageRefused):
        repair(site, ANN, job.jid)


@pytest.fixture
def of_merritt(session: Session) -> Iterator[tuple[str, str]]:
    """A batch and its job as Merritt's own library writes them."""
    time, queue_entry = "2026-09-01 12:00:00 +0000", "/jobs/states/downloading/05-jid0000000000"
    job_status = {"status": "Downloading", "last_successful_status": "Provisioning", "retry_count": 0}
    nodes = {
        "/batches/bid0000000000/submission": {"profile_name": "merritt_content", "submitter": "me/Me"},
        "/batches/bid0000000000/status": {"status": "Processing", "last_modified": time, "message": ""},
        "/batches/bid0000000000/states/batch-processing/jid0000000000": None,
        "/jobs/jid0000000000/bid": "bid0000000000",
        "/jobs/jid0000000000/configuration": {"batch_id": "bid0000000000", "payload_filename": "a.txt"},
        "/jobs/jid0000000000/status": {**job_status, "last_modified": time, "message": ""},
        "/jobs/jid0000000000/priority": 5,
        "/jobs/jid0000000000/space_needed": 0,
        queue_entry: None,
    }
    for path, value in nodes.items():
        session.ensure_node(path, b"" if value is None else json.dumps(value).encode())
    yield "bid0000000000", "jid0000000000"
    for path in (
        "/batches/bid0000000000",
        "/jobs/jid0000000000",
        "/jobs/states/downloading/05-jid0000000000",
    ):
        session.zk.delete(path, recursive=True)


@pytest.mark.parametrize("which", [0, 1], ids=["batch", "job"])
def test_a_record_of_merritts_own_queue_is_named_and_a_repair_of_it_is_refused(
    which: int, of_merritt: tuple[str, str], session: Session, site: Site, settings: Settings
) -> None:
    name = of_merritt[which]
    before = session.get_many([paths.batch_status("bid0000000000"), paths.job_status("jid0000000000")])

    facts = why(Site(settings, session), ANN, name)
    with pytest.raises(RecordOfMerritt, match="does not take over"):
        repair(site, ANN, name)

    assert "is of Merritt's own queue" in facts.message
    assert Remedy(Action.REPAIR, name) not in facts.remedies
    after = session.get_many([paths.batch_status("bid0000000000"), paths.job_status("jid0000000000")])
    assert [node and node[0] for node in after] == [node and node[0] for node in before]
