"""Why a job or a batch is where it is: the facts, and the paragraph that is written from them."""

from collections.abc import Callable

import pytest

from entrypoints.render.explanation import text
from operations.deposits.submission import submit
from operations.reasons import Reason
from operations.site import Site
from operations.verbs.verbs import act
from operations.why.why import why
from pipeline.errors import Action, Remedy
from pipeline.records import Job, StatusReport
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tests.support import planting
from tests.support.operators import ANN
from tests.support.waits import RETRY
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

AWAY = {"broker_url": "redis://127.0.0.1:1/0"}
"""A port where nobody listens."""


def paused(session: Session, job: Job) -> None:
    holds.place(session, Hold(by="ann@desk", reason="database is moved"))


def on_hold(session: Session, job: Job) -> None:
    holds.place(session, Hold(by="bob@desk", reason="bad metadata"), "demo")


def locked(session: Session, job: Job) -> None:
    planting.acquire(session, job)


def between_tries(session: Session, job: Job) -> None:
    held = planting.acquire(session, job)
    record.hand_back(
        session,
        held,
        "worker",
        message="source answers 503",
        delay=90,
        waits_for=RETRY,
    )


def handed_out(session: Session, job: Job) -> None:
    record.redispatch(session, job, lost=False)


@pytest.mark.parametrize(
    ("circumstance", "reason", "shown"),
    [
        (paused, Reason.QUEUE_PAUSED, "by ann@desk less than a second ago (database is moved)"),
        (on_hold, Reason.COLLECTION_ON_HOLD, "by bob@desk less than a second ago (bad metadata)"),
        (locked, Reason.BEING_WORKED_ON, "The test "),
        (between_tries, Reason.BETWEEN_TRIES, "source answers 503. Try 2 of 33 starts in 1 minute"),
        (handed_out, Reason.BEING_DISPATCHED, "being sent to a worker"),
        (lambda *_: None, Reason.NO_BEAT, "No beat is running"),
    ],
    ids=["paused", "on hold", "locked", "between tries", "handed out", "no beat"],
)
def test_why_names_what_a_pending_job_waits_for(
    session: Session,
    settings: Settings,
    circumstance: Callable[[Session, Job], None],
    reason: Reason,
    shown: str,
) -> None:
    job = planting.one_job(session)

    circumstance(session, job)

    found = why(Site(settings, session), ANN, job.jid)
    assert found.reason is reason
    assert shown in text(found)


def test_why_names_the_person_who_held_a_job_and_the_reason(session: Session, settings: Settings) -> None:
    job = planting.one_job(session)
    site = Site(settings, session)
    act(site, ANN, job.jid, Event.HOLD, reason="ask the archivist first")

    found = why(site, ANN, job.jid)

    assert (found.holder, found.hold_reason) == (ANN.name, "ask the archivist first")
    assert f"It was put on hold by {ANN.name} less than a second ago (ask the archivist first)." in text(
        found
    )
    assert "no longer on hold" not in text(found)
    assert found.remedies == (Remedy(Action.RELEASE, job.jid),)


def test_why_counts_the_jobs_before_it_and_the_places(session: Session, settings: Settings) -> None:
    _, jids = planting.split_batch(session, 3)
    for jid in jids[:2]:
        planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)
    last = planting.one_job(session)

    found = why(Site(settings.model_copy(update={"in_flight": 2}), session), ANN, last.jid)

    assert found.reason is Reason.WAITING_FOR_TURN
    assert (found.ahead, found.taken, found.limit) == (1, 2, 2)


def test_why_says_that_a_job_waits_for_space(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.PROVISIONING)
    settings.working.mkdir(parents=True)
    held = planting.acquire(session, job)
    record.hand_back(session, held, "worker", message="needs 3 GB")

    (settings.working / "other").write_text("x")

    found = why(Site(settings.model_copy(update={"working_capacity": 1}), session), ANN, job.jid)

    assert (found.reason, found.taken, found.limit) == (Reason.WAITING_FOR_SPACE, 1, 0)


def test_why_knows_that_the_broker_is_away(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)

    found = why(Site(settings.model_copy(update=AWAY), session), ANN, job.jid)

    assert (found.reason, found.waits_for) == (Reason.BROKER_UNREACHABLE, "127.0.0.1:1")
    assert "Nothing is lost" in text(found)


def test_why_sees_a_message_that_nobody_takes(session: Session, settings: Settings) -> None:
    bid = submit(Site(settings, session), ANN, planting.submission()).bid

    found = why(Site(settings, session), ANN, bid)
    assert (found.reason, found.waits_for) == (Reason.NO_WORKER, "split")


def test_why_names_a_worker_that_is_drained_and_does_not_answer_beside_the_start_of_one(
    session: Session, settings: Settings
) -> None:
    bid = submit(Site(settings, session), ANN, planting.submission()).bid
    holds.place(session, Hold(by="ann"), worker="worker1@gone")

    remedies = why(Site(settings, session), ANN, bid).remedies

    assert {Remedy(Action.UNDO_DRAIN, "worker1@gone"), Remedy(Action.START_WORKER, "split")} <= set(remedies)


def test_why_tells_who_has_to_act_on_a_failure(session: Session, settings: Settings) -> None:
    beyond = planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)
    rejected = planting.one_job(session)
    planting.apply_event(session, rejected, Event.FAIL, FailureKind.CONTENT)

    found = why(Site(settings, session), ANN, beyond.jid)
    assert (found.reason, found.resumes_in) == (Reason.FAILED_SYSTEM, JobState.PROCESSING)
    assert f"arkline resume {beyond.jid}" in text(found)
    found = why(Site(settings, session), ANN, rejected.jid)
    assert (found.reason, found.failed_in, found.resumes_in) == (Reason.FAILED_CONTENT, "pending", "")
    assert "deposit it again" in text(found)


def test_a_batch_whose_job_ended_after_it_was_reported_in_progress_needs_another_report(
    session: Session, settings: Settings
) -> None:
    job = planting.job_in(session, JobState.COMPLETED)
    reporting = batches.finish_if_ended(session, job.bid, "w")
    assert reporting is not None
    report = StatusReport(unfinished_jobs=(job.jid,))
    batches.move(session, reporting, BatchMove(Event.FAIL, "w", report=report, lock=Lock.FREE))

    cause = why(Site(settings, session), ANN, job.bid)

    assert cause.reason is Reason.REPORT_OUTDATED
    assert Remedy(Action.UPDATE_REPORT, job.bid) in cause.remedies
