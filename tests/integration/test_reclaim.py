"""Failed jobs give up working storage for others, and every failed job has a way back; on the real record."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from entrypoints.render.explanation import text
from operations.fleet.fleet import Fleet
from operations.fleet.working_storage import GivesBack, space_view
from operations.reasons import Reason
from operations.site import Site
from operations.verbs.verbs import Resumption, act
from operations.why.waiting import _space
from operations.why.why import why_job
from pipeline.errors import Action, Remedy
from pipeline.outcome import AttemptOver, Done, Reservation
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, IllegalTransition, JobState, Room
from pipeline.working_storage import capacity, mount
from tasks import app, retention
from tasks.scheduled import beat
from tests.support import planting
from tests.support.operators import ANN
from tests.support.paused_removal import PausedRemoval
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Stale
from zkstate.record import batches, jobs, space
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock


@pytest.fixture
def small(settings: Settings) -> Iterator[Settings]:
    """Working storage of 1000 bytes, all of which may be used."""
    mount.mark(settings.working)
    capacity.measure_again()
    yield settings.model_copy(update={"working_capacity": 1000, "working_threshold": 100})
    capacity.measure_again()


def job_with(session: Session, settings: Settings, reserved: int, on_disk: int) -> Job:
    """A job in downloading with a reservation and with bytes in its working directory."""
    job = waiting_job(session, settings, reserved)
    granted = Done(reservation=Reservation(reserved, space.promised(session)))
    job = jobs.move(session, planting.acquire(session, job), JobMove(Event.SUCCEED, "w", done=granted))
    producer = Path(job.configuration.working_dir) / "producer"
    producer.mkdir(parents=True)
    (producer / "a").write_bytes(b"x" * on_disk)
    return job


def waiting_job(session: Session, settings: Settings, needed: int) -> Job:
    """A job in provisioning."""
    job = planting.one_job(session, working=settings.working)
    job = planting.apply_event(session, job, Event.ACQUIRE)
    estimated = JobMove(Event.SUCCEED, "w", done=Done(space_needed=needed))
    return jobs.move(session, planting.acquire(session, job), estimated)


def fail(session: Session, job: Job, kind: FailureKind) -> Job:
    failed = JobMove(Event.FAIL, "w", message="broken", kind=kind)
    return jobs.move(session, planting.acquire(session, job), failed)


def recheck(session: Session, settings: Settings) -> None:
    context = app.make_context(settings)
    capacity.measure_again()
    with single_flight(session, "recheck_provisioning") as clock:
        assert clock is not None
        beat.WORK["recheck_provisioning"](context, session, clock)
    context.drop_session()


def state(session: Session, job: Job) -> JobState:
    return jobs.load(session, job.jid).status.status


def test_a_failure_of_content_gives_its_reservation_up_at_once_and_keeps_what_was_fetched(
    session: Session, small: Settings
) -> None:
    failed = fail(session, job_with(session, small, 700, 100), FailureKind.CONTENT)

    assert (failed.status.room, space.promised(session).bytes) == (Room.YIELDED, 0)
    assert (Path(failed.configuration.working_dir) / "producer" / "a").exists()
    assert audit(session) == ()


def test_a_failed_job_keeps_its_reservation_until_another_job_needs_the_room(
    session: Session, small: Settings
) -> None:
    failed = fail(session, job_with(session, small, 700, 100), FailureKind.TRANSIENT)
    fitting = waiting_job(session, small, 300)
    recheck(session, small)
    assert space.reservation_of(session, failed.jid) == 700
    waiting = waiting_job(session, small, 500)

    recheck(session, small)

    assert (state(session, fitting), state(session, waiting)) == (JobState.DOWNLOADING,) * 2
    assert space.reservation_of(session, failed.jid) is None
    assert jobs.load(session, failed.jid).status.room is Room.YIELDED
    assert jobs.load(session, failed.jid).status.message == "broken"
    assert (Path(failed.configuration.working_dir) / "producer" / "a").exists()
    assert audit(session) == ()


def test_a_job_whose_run_meets_a_mistake_keeps_no_job_behind_it_waiting(
    session: Session, small: Settings
) -> None:
    first, second = (waiting_job(session, small, 300) for _ in range(2))
    history = paths.history(first.jid)
    whole, _ = session.get(history)
    session.zk.set(history, b"[]")  # a move of such a job fails
    context = app.make_context(small)
    own = context.session()

    with single_flight(session, "recheck_provisioning") as clock:
        assert clock is not None
        beat.WORK["recheck_provisioning"](context, own, clock)

    assert [state(session, job) for job in (first, second)] == [JobState.PROVISIONING, JobState.DOWNLOADING]
    context.drop_session()
    session.zk.set(history, whole)


def test_a_job_that_was_resumed_meanwhile_keeps_its_reservation_and_its_content(
    session: Session, small: Settings
) -> None:
    job = job_with(session, small, reserved=500, on_disk=100)

    with pytest.raises(Stale, match=f"{job.jid} is downloading"):
        jobs.yield_reservation(session, job.jid, "beat")
    with pytest.raises(Stale, match=f"{job.jid} is downloading"), jobs.emptying(session, job.jid, "beat"):
        pytest.fail("the content of a job at work would be removed")

    assert space.reservation_of(session, job.jid) == 500


def test_a_removal_that_pauses_and_continues_late_removes_nothing_of_a_later_attempt(
    session: Session, small: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = app.make_context(small)
    failed = fail(session, job_with(session, small, 300, 300), FailureKind.SYSTEM)
    producer = Path(failed.configuration.working_dir) / "producer"
    removal = PausedRemoval(monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(retention._empty, context, context.session(), failed.jid)
        removal.await_pause()
        session.ask(session.zk.delete_async, paths.job_lock(failed.jid))  # as when a session expires
        producer.mkdir(parents=True, exist_ok=True)
        (producer / "b").write_bytes(b"of a later attempt")
        removal.resumed.set()
        with pytest.raises((AttemptOver, Stale)):
            late.result(30)

    assert [file.name for file in producer.iterdir()] == ["b"]
    context.drop_session()


def test_forgotten_failures_never_close_the_intake(session: Session, small: Settings) -> None:
    old = [fail(session, job_with(session, small, 300, 300), FailureKind.SYSTEM) for _ in range(3)]
    waiting = waiting_job(session, small, 600)

    recheck(session, small)

    assert state(session, waiting) is JobState.DOWNLOADING
    rooms = [jobs.load(session, job.jid).status.room for job in old]
    assert rooms == [Room.EMPTY, Room.EMPTY, Room.KEPT]
    kept = [(Path(job.configuration.working_dir) / "producer").exists() for job in old]
    assert kept == [False, False, True]
    assert audit(session) == ()


def manifest_of(job: Job) -> Path:
    manifest = Path(job.configuration.working_dir) / "manifest.checkm"
    manifest.write_bytes(b"x" * 900)
    return manifest


def test_a_job_that_needs_all_of_working_storage_gets_it_from_a_failed_job_with_a_manifest(
    session: Session, small: Settings
) -> None:
    failed = fail(session, job_with(session, small, 100, 100), FailureKind.SYSTEM)
    manifest = manifest_of(failed)
    waiting = waiting_job(session, small, 1000)

    recheck(session, small)
    recheck(session, small)

    assert (state(session, waiting), manifest.exists()) == (JobState.DOWNLOADING, False)
    assert not Path(failed.configuration.working_dir).parent.exists()
    assert jobs.load(session, failed.jid).status.room is Room.EMPTY
    assert audit(session) == ()


def test_a_stored_job_that_is_emptied_keeps_what_its_recording_reads_and_why_says_who_has_the_room(
    session: Session, small: Settings
) -> None:
    job = job_with(session, small, 100, 100)
    for _ in range(2):
        job = planting.apply_event(session, job, Event.SUCCEED)
    stored = fail(session, job, FailureKind.SYSTEM)
    manifest = manifest_of(stored)
    waiting = waiting_job(session, small, 1000)

    recheck(session, small)

    found = why_job(Fleet(Site(small, session)), waiting)
    assert (state(session, waiting), manifest.exists()) == (JobState.PROVISIONING, True)
    assert jobs.load(session, stored.jid).status.room is Room.EMPTY
    assert (found.moves_itself, found.users) == (False, {stored.jid: 900})


def test_nothing_is_removed_for_a_job_that_would_not_fit_even_then(session: Session, small: Settings) -> None:
    job_with(session, small, 600, 600)
    failed = fail(session, job_with(session, small, 300, 300), FailureKind.SYSTEM)
    waiting = waiting_job(session, small, 500)

    recheck(session, small)

    assert state(session, waiting) is JobState.PROVISIONING
    assert jobs.load(session, failed.jid).status.room is Room.KEPT


def resumed(session: Session, job: Job) -> Job:
    failed = fail(session, job, FailureKind.CONTENT)
    return jobs.move(session, failed, JobMove(Event.RESUME, "ann", lock=Lock.FREE, to=JobState.PROVISIONING))


def is_downloaded(job: Job) -> bool:
    return (Path(job.configuration.working_dir) / "producer" / "a").exists()


def test_jobs_that_were_resumed_with_their_content_do_not_wait_for_each_other(
    session: Session, small: Settings
) -> None:
    partly = [job_with(session, small, 300, 300) for _ in range(3)]
    for job in partly:
        (Path(job.configuration.working_dir) / "producer" / "b").write_bytes(b"x" * 100)
    first, second, last = (resumed(session, job) for job in partly)

    recheck(session, small)
    assert [state(session, job) for job in (first, second, last)] == [
        JobState.DOWNLOADING,
        JobState.DOWNLOADING,
        JobState.PROVISIONING,
    ]

    assert [is_downloaded(job) for job in (first, second, last)] == [True, True, False]
    assert "because other jobs need the room" in jobs.load(session, last.jid).history[-1].message
    assert audit(session) == ()


def test_while_a_job_at_work_will_free_room_no_waiting_job_loses_its_content(
    session: Session, small: Settings
) -> None:
    working = job_with(session, small, 400, 400)
    waits = [resumed(session, job_with(session, small, 300, 200)) for _ in range(2)]
    (Path(working.configuration.working_dir) / "producer" / "b").write_bytes(b"x" * 300)

    recheck(session, small)

    assert [state(session, job) for job in waits] == [JobState.PROVISIONING] * 2
    assert [is_downloaded(job) for job in waits] == [True] * 2


def test_a_job_in_review_keeps_its_room_and_why_says_that_a_decision_makes_room(
    session: Session, small: Settings
) -> None:
    reviewed = planting.apply_event(session, job_with(session, small, 700, 100), Event.REVIEW)
    waiting = waiting_job(session, small, 500)

    recheck(session, small)

    site = Site(small, session)
    (part,) = space_view(site, ANN).reservations
    assert (part.jid, part.bytes, part.gives_back) == (reviewed.jid, 700, GivesBack.AFTER_REVIEW)
    assert (Path(reviewed.configuration.working_dir) / "producer" / "a").exists()
    found = why_job(Fleet(site), waiting)
    assert (found.moves_itself, found.remedies[0]) == (False, Remedy(Action.SHOW_REVIEWS))
    act(site, ANN, reviewed.jid, Event.REJECT, reason="it is the wrong reel")
    recheck(session, small)
    assert state(session, waiting) is JobState.DOWNLOADING
    assert audit(session) == ()


def test_an_object_that_can_never_fit_fails_with_a_report(session: Session, small: Settings) -> None:
    waiting = waiting_job(session, small, 1001)

    recheck(session, small)

    failed = jobs.load(session, waiting.jid)
    assert (failed.status.status, failed.status.kind) == (JobState.FAILED, FailureKind.SYSTEM)
    assert "it can never fit" in failed.status.message
    assert batches.load(session, failed.bid).status.total == 1


def test_a_job_that_gave_up_its_content_is_resumed_where_it_gets_room_again(
    session: Session, small: Settings
) -> None:
    old = fail(session, job_with(session, small, 800, 800), FailureKind.SYSTEM)
    recheck_for = waiting_job(session, small, 900)
    recheck(session, small)
    assert state(session, recheck_for) is JobState.DOWNLOADING

    resumed = jobs.move(session, jobs.load(session, old.jid), JobMove(Event.RESUME, "ann", lock=Lock.FREE))

    assert (resumed.status.status, resumed.status.room) == (JobState.PROVISIONING, Room.KEPT)
    assert space.promised(session).bytes == 900
    recheck(session, small)
    assert state(session, old) is JobState.PROVISIONING
    assert audit(session) == ()


def test_a_job_whose_reservation_cannot_be_released_does_not_stay_locked(
    session: Session, small: Settings
) -> None:
    failed = fail(session, job_with(session, small, 300, 300), FailureKind.SYSTEM)
    context = app.make_context(small)
    own = context.session()
    session.ask(session.zk.set_async, paths.SPACE, b"damaged")
    try:
        with pytest.raises(Corrupt):
            retention._empty(context, own, failed.jid)

        assert session.exists(paths.job_lock(failed.jid)) is None
    finally:
        context.drop_session()
    space.correct_sum(session)
    act(Site(small, session), ANN, failed.jid, Event.RESUME, feeding=False)
    assert audit(session) == ()


def test_an_operator_resumes_a_job_from_an_earlier_step(session: Session, small: Settings) -> None:
    failed = fail(session, job_with(session, small, 300, 300), FailureKind.CONTENT)
    site = Site(small, session)

    with pytest.raises(IllegalTransition, match="possible: pending, estimating, provisioning"):
        act(site, ANN, failed.jid, Event.RESUME, how=Resumption(to=JobState.DOWNLOADING))
    planned = act(site, ANN, failed.jid, Event.RESUME, how=Resumption(to=JobState.ESTIMATING), dry_run=True)
    done = act(site, ANN, failed.jid, Event.RESUME, how=Resumption(to=JobState.ESTIMATING))

    assert (planned.now, done.now) == (JobState.ESTIMATING,) * 2
    resumed = jobs.load(session, failed.jid)
    assert (resumed.status.last_successful_status, resumed.status.retry_count) == (None, 1)
    assert audit(session) == ()


def test_why_says_that_lost_content_is_downloaded_again(session: Session, small: Settings) -> None:
    job = job_with(session, small, 300, 300)
    (Path(job.configuration.working_dir) / "landing.json").write_text("[]")
    processing = planting.apply_event(session, job, Event.SUCCEED)
    failed = fail(session, processing, FailureKind.SYSTEM)
    fleet = Fleet(Site(small, session))
    assert not why_job(fleet, failed).content_gone
    shutil.rmtree(failed.configuration.working_dir)

    found = why_job(fleet, failed)

    assert (found.content_gone, found.remedies) == (True, (Remedy(Action.RESUME, failed.jid),))
    assert "no longer in working storage: the resume downloads it again" in text(found)


def test_space_and_why_name_the_jobs_that_hold_it(session: Session, small: Settings) -> None:
    failed = fail(session, job_with(session, small, 300, 100), FailureKind.SYSTEM)
    active = job_with(session, small, 600, 0)
    waiting = waiting_job(session, small, 500)
    capacity.measure_again()

    held = {part.jid: part for part in space_view(Site(small, session), ANN).reservations}
    found = why_job(Fleet(Site(small, session)), waiting)

    assert (held[failed.jid].bytes, held[failed.jid].on_disk, held[failed.jid].kind) == (
        300,
        100,
        FailureKind.SYSTEM,
    )
    assert (held[active.jid].bytes, held[active.jid].on_disk) == (600, 0)
    assert found.users == {active.jid: 600, failed.jid: 300}
    assert f"{active.jid} 600 bytes, {failed.jid} 300 bytes" in text(found)


def alien(settings: Settings, size: int) -> None:
    (settings.working / "alien").write_bytes(b"x" * size)
    capacity.measure_again()


def test_why_has_remedies_for_jobs_that_wait_for_each_other_beside_files_of_other_programs(
    session: Session, small: Settings
) -> None:
    waits = [waiting_job(session, small, 500) for _ in range(2)]
    for job in waits:
        manifest = Path(job.configuration.working_dir) / "manifest.checkm"
        manifest.parent.mkdir(parents=True)
        manifest.write_bytes(b"x" * 50)
    alien(small, 900)

    fleet = Fleet(Site(small, session))

    for job in waits:
        found = why_job(fleet, job)
        assert (found.reason, found.moves_itself) == (Reason.WAITING_FOR_SPACE, False)
        assert {Remedy(Action.CLEAN_UP), Remedy(Action.ADD_SPACE)} <= set(found.remedies)
        assert "remove files of other programs from it" in text(found)


@pytest.mark.parametrize(("foreign", "enough"), [(700, False), (200, True)])
def test_a_job_waits_without_anyones_action_only_if_the_jobs_at_work_hold_what_it_lacks(
    session: Session, small: Settings, foreign: int, enough: bool
) -> None:
    job_with(session, small, 300, 0)
    waiting = waiting_job(session, small, 700)
    alien(small, foreign)

    found = _space(Fleet(Site(small, session)), waiting)

    assert (found.reason, found.moves_itself) == (Reason.WAITING_FOR_SPACE, enough)


def test_a_job_that_waits_for_room_is_not_said_to_give_its_part_back_within_the_usual_stay(
    session: Session, small: Settings
) -> None:
    job = waiting_job(session, small, 500)
    Path(job.configuration.working_dir).mkdir(parents=True)
    (Path(job.configuration.working_dir) / "manifest.checkm").write_bytes(b"x")
    capacity.measure_again()

    (part,) = space_view(Site(small, session), ANN, {JobState.PROVISIONING: 15.0}).reservations

    assert (part.jid, part.usual) == (job.jid, None)
