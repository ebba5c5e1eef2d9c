"""What operators do to jobs: what the table allows, once, with everything that follows from it."""

import dataclasses
from pathlib import Path

import pytest

from operations.jobs.allowed_verbs import Moved
from operations.site import Site
from operations.verbs.verbs import act
from pipeline.inventory.archive import find_job
from pipeline.notify.batch_report import reported_job
from pipeline.principal import Forbidden, Role
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, FailureKind, IllegalTransition, JobState, Raiser, Room
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import folder_of
from tasks.broker import read_queues
from tests.support import planting
from tests.support.operators import ANN, downloading_job
from zkstate import codec, paths
from zkstate.care import audit
from zkstate.connection.session import Session
from zkstate.errors import Busy, Missing, Stale
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import queue
from zkstate.record import batches, jobs, space
from zkstate.record.jobs import JobMove

JOB_VERBS = {row.event for row in JOB.table if Raiser.OPERATOR in row.by}
LIVING = [state for state in JobState if state is not JobState.DELETED]


@pytest.mark.parametrize("state", LIVING)
def test_what_the_jobs_table_does_not_allow_is_refused_and_changes_nothing(
    session: Session, site: Site, state: JobState
) -> None:
    job = planting.job_in(session, state)
    before = planting.tree(session)

    for event in JOB_VERBS - JOB.events(state, Raiser.OPERATOR):
        with pytest.raises(IllegalTransition, match=f"{job.jid} is {state}: an operator cannot {event} it"):
            act(site, ANN, job.jid, event)

    assert planting.tree(session) == before


@pytest.mark.parametrize("event", sorted(JOB_VERBS))
@pytest.mark.parametrize(
    ("limits", "refusal", "message"),
    [
        ({"role": Role.VIEWER}, Forbidden, "must not {} {}"),
        ({"role": Role.DEPOSITOR}, Missing, "there is no job {1}"),
        ({"collections": frozenset({"other"})}, Missing, "there is no job {1}"),
    ],
    ids=["viewer", "depositor", "other collection"],
)
def test_without_the_right_a_verb_is_refused_and_changes_nothing(
    session: Session,
    site: Site,
    event: Event,
    limits: dict[str, object],
    refusal: type[Exception],
    message: str,
) -> None:
    """Who may not even see the job learns nothing of it."""
    job = planting.one_job(session)
    before = planting.tree(session)
    principal = ANN.model_copy(update=limits)

    with pytest.raises(refusal, match=message.format(event, job.jid)):
        act(site, principal, job.jid, event)

    assert planting.tree(session) == before


def test_a_verb_on_the_version_that_was_seen_is_carried_out(session: Session, site: Site) -> None:
    job = planting.one_job(session)

    held = act(site, ANN, job.jid, Event.HOLD, version=job.version)
    act(site, ANN, job.jid, Event.RELEASE, version=held.version)

    assert jobs.load(session, job.jid).status.status is JobState.PENDING


def test_a_verb_on_an_older_version_says_who_moved_the_job_and_what_is_possible_now(
    session: Session, site: Site
) -> None:
    job = planting.one_job(session)
    bob = ANN.model_copy(update={"name": "bob@desk"})
    act(site, bob, job.jid, Event.HOLD)
    before = planting.tree(session)

    with pytest.raises(Moved, match=r"held since .* changed by bob@desk; possible now: delete, release"):
        act(site, ANN, job.jid, Event.HOLD, version=job.version)
    with pytest.raises(Moved):
        act(site, ANN, job.jid, Event.RELEASE, version=job.version, dry_run=True)

    assert planting.tree(session) == before


def test_a_held_job_waits_until_it_is_released(session: Session, site: Site) -> None:
    job = planting.one_job(session)

    act(site, ANN, job.jid, Event.HOLD, reason="because")
    held = jobs.load(session, job.jid)
    acted = act(site, ANN, job.jid, Event.RELEASE, reason="because")

    assert (held.status.status, held.history[-1].by, held.history[-1].via) == (
        JobState.HELD,
        "ann@desk",
        "cli",
    )
    assert held.status.message == "hold by ann@desk: because"
    assert (acted.was, acted.now) == (JobState.HELD, JobState.PENDING)
    assert jobs.load(session, job.jid).status.dispatched_at is not None


def test_a_job_is_not_released_into_a_collection_on_hold(session: Session, site: Site) -> None:
    job = planting.job_in(session, JobState.HELD)
    holds.place(session, Hold(by="bob"), "demo")

    with pytest.raises(IllegalTransition, match="on hold by bob"):
        act(site, ANN, job.jid, Event.RELEASE)


def test_a_pending_job_that_a_worker_has_acquired_is_not_held(session: Session, site: Site) -> None:
    job = planting.one_job(session)
    planting.acquire(session, job)

    with pytest.raises(Busy):
        act(site, ANN, job.jid, Event.HOLD)


def test_failing_a_running_job_frees_its_lock_and_its_promise_and_fences_its_worker(
    session: Session, site: Site, settings: Settings
) -> None:
    running = planting.acquire(session, downloading_job(session, settings))

    act(site, ANN, running.jid, Event.FAIL, reason="because")

    failed = jobs.load(session, running.jid)
    assert (failed.status.status, failed.status.kind) == (JobState.FAILED, FailureKind.SYSTEM)
    assert failed.status.message == "failed by ann@desk: because"
    assert session.exists(paths.job_lock(running.jid)) is None
    assert space.promised(session).bytes == 0
    with pytest.raises(Stale):
        jobs.move(session, running, JobMove(Event.SUCCEED, "the zombie"))
    batch = batches.load(session, running.bid)
    assert batch.status.status is BatchState.REPORTING
    assert (batch.bid, batch.status.epoch) in read_queues(settings).tickets


def test_a_job_that_is_stored_and_recorded_is_ended_as_completed_and_its_worker_is_fenced(
    session: Session, site: Site, settings: Settings
) -> None:
    """Its worker may have sent the callback COMPLETED a moment ago, and cannot be asked."""
    job = planting.job_in(session, JobState.NOTIFY)
    folder = folder_of(job, settings.working)
    folder.mkdir(parents=True)
    mount.mark(settings.working)
    notifying = planting.acquire(session, job)

    expected = act(site, ANN, job.jid, Event.FAIL, dry_run=True)
    acted = act(site, ANN, job.jid, Event.FAIL, reason="the receiver is gone")

    ended = jobs.load(session, job.jid)
    assert (acted.was, acted.now, expected.now) == (JobState.NOTIFY, JobState.COMPLETED, JobState.COMPLETED)
    assert acted.note == "it was stored and recorded already; its receiver may not have been notified"
    assert (ended.status.status, ended.status.kind, ended.status.cause, ended.status.room) == (
        JobState.COMPLETED,
        None,
        None,
        Room.KEPT,
    )
    assert ended.status.message == "completed by ann@desk: the receiver is gone"
    assert ended.status.remark == (
        "your system may not have been notified that this object is stored: our staff did not wait for it: "
        "the receiver is gone"
    )
    assert (ended.history[-1].event, ended.history[-1].reason) == (Event.FAIL, "the receiver is gone")
    assert session.exists(paths.job_lock(job.jid)) is None
    assert space.promised(session).bytes == 0
    assert session.children(paths.CALLBACKS) == []
    assert queue.queued(session, JobState.COMPLETED) == []
    assert not folder.exists()
    with pytest.raises(Stale):
        jobs.move(session, notifying, JobMove(Event.SUCCEED, "the zombie"))
    with pytest.raises(IllegalTransition):
        act(site, ANN, job.jid, Event.FAIL, reason="again")
    reported = reported_job(ended)
    assert (reported.state, reported.message, reported.remark) == (
        JobState.COMPLETED,
        "",
        ended.status.remark,
    )
    assert list(audit.audit(session)) == []


def test_what_the_sweep_or_a_worker_fails_in_its_notification_has_failed_and_is_resumed_there(
    session: Session, site: Site
) -> None:
    job = planting.apply_event(session, planting.job_in(session, JobState.NOTIFY), Event.FAIL)

    assert job.status.status is JobState.FAILED
    assert act(site, ANN, job.jid, Event.RESUME).now == JobState.NOTIFY


def test_a_failed_job_goes_on_after_its_last_success(
    session: Session, site: Site, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)

    acted = act(site, ANN, job.jid, Event.RESUME)

    resumed = jobs.load(session, job.jid)
    assert acted.now == resumed.status.status == JobState.PROCESSING
    assert resumed.status.retry_count == 1
    assert (job.jid, resumed.status.epoch) in read_queues(settings).tickets


def test_a_job_that_failed_before_anything_was_done_is_fed_again(
    session: Session, site: Site, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.FAILED, None)

    act(site, ANN, job.jid, Event.RESUME)

    resumed = jobs.load(session, job.jid)
    assert resumed.status.status is JobState.PENDING
    assert (job.jid, resumed.status.epoch) in read_queues(settings).tickets


def test_a_job_whose_payload_was_wrong_is_not_resumed(session: Session, site: Site) -> None:
    job = planting.one_job(session)
    planting.apply_event(session, job, Event.FAIL, FailureKind.CONTENT)

    with pytest.raises(IllegalTransition, match="a new submission is required"):
        act(site, ANN, job.jid, Event.RESUME)


def test_a_deleted_job_leaves_a_tombstone_and_nothing_else(
    session: Session, site: Site, settings: Settings
) -> None:
    job = downloading_job(session, settings)
    planting.apply_event(session, job, Event.FAIL)

    acted = act(site, ANN, job.jid, Event.DELETE, reason="because")

    assert (acted.sent, acted.folder_left) == (True, "")
    with pytest.raises(Missing):
        jobs.load(session, job.jid)
    kept = find_job(site.inventory(), job.jid)
    assert kept is not None
    assert (kept.disposition.who, kept.disposition.why) == ("ann@desk", "because")
    assert kept.history[-1].state is JobState.FAILED
    assert space.promised(session).bytes == 0
    assert not Path(job.configuration.working_dir).exists()
    assert batches.load(session, job.bid).status.status is BatchState.REPORTING


def test_a_folder_outside_working_storage_is_left_alone(
    session: Session, site: Site, settings: Settings, tmp_path: Path
) -> None:
    job = downloading_job(session, settings)
    planting.apply_event(session, job, Event.FAIL)
    elsewhere = Settings.model_validate({**settings.model_dump(), "working_storage": tmp_path / "elsewhere"})

    acted = act(dataclasses.replace(site, settings=elsewhere), ANN, job.jid, Event.DELETE)

    assert acted.folder_left == job.configuration.working_dir
    assert Path(job.configuration.working_dir).exists()


def test_a_paused_queue_is_not_fed_by_a_release(session: Session, site: Site) -> None:
    job = planting.job_in(session, JobState.HELD)
    holds.place(session, Hold())

    act(site, ANN, job.jid, Event.RELEASE)

    assert queue.queued(session, JobState.PENDING) == [job.jid]
    assert jobs.load(session, job.jid).status.dispatched_at is None


def test_a_folder_that_the_record_names_is_not_removed_if_it_is_not_the_jobs_own(
    session: Session, site: Site, settings: Settings, tmp_path: Path
) -> None:
    foreign = tmp_path / "of somebody else"
    foreign.mkdir()
    job = downloading_job(session, settings)
    poisoned = job.configuration.model_copy(update={"working_dir": str(foreign)})
    session.zk.set(paths.configuration(job.jid), codec.encode(poisoned))
    planting.apply_event(session, jobs.load(session, job.jid), Event.FAIL)

    act(site, ANN, job.jid, Event.DELETE)

    assert foreign.exists()
    assert not folder_of(job, settings.working).exists()
