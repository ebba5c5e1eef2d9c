"""A job's path: STEPS says what each state does, `run` how any state is run.

`run`: read the record, take the lock, work, move, hand on the ticket. A ticket that is stale, doubled or
late finds the record elsewhere and does nothing.
"""

from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from typing import Any

import structlog
from celery.exceptions import Ignore

from pipeline.outcome import AttemptOver, Done, RateLimited, StepFailed, Stopping, Wait, system
from pipeline.records import Job, Ticket
from pipeline.states import JOB, Event, JobState
from pipeline.steps import download, estimate, notify, pending, process, provision, record
from pipeline.steps.context import StepContext
from tasks.after_move import after_move
from tasks.logs import log
from tasks.profiles import host_limit, profile_of
from tasks.progress import ReportingAttempt
from tasks.retry_policy import delay_before_retry
from tasks.worker_context import WorkerContext
from zkstate import jobs, paths
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Refused, Stale, Unreachable
from zkstate.hosts import FleetHostLimiter
from zkstate.job_record import ZooKeeperJobRecord
from zkstate.locks import AttemptGuard
from zkstate.session import Session

Step = Callable[[Job, StepContext], Done | Wait]

STEPS: dict[JobState, Step] = {
    JobState.PENDING: pending.work,
    JobState.ESTIMATING: estimate.work,
    JobState.PROVISIONING: provision.work,
    JobState.DOWNLOADING: download.work,
    JobState.PROCESSING: process.work,
    JobState.RECORDING: record.work,
    JobState.NOTIFY: notify.work,
}


def run(context: WorkerContext, ticket: Ticket) -> Ticket | None:
    """Do the work of the ticket's state; the next state's ticket, or None if there is nothing to chain."""
    try:
        session = context.session()
        guard = AttemptGuard(session, context.stopping)
        try:
            job = jobs.acquire(session, ticket, context.name)
        except (Stale, Busy, Missing) as reason:
            log().debug("ticket is void", ticket=ticket.model_dump(), reason=str(reason))
            return None
        except Corrupt as damage:
            log().error("cannot be taken up", ticket=ticket.model_dump(), error=str(damage))
            return None
        guard.watch_lock(paths.job_lock(job.jid))
        return _attempt(context, session, guard, job)
    except (Unreachable, Ambiguous) as error:
        log().warning("gave up the attempt", ticket=ticket.model_dump(), error=str(error))
        context.drop_session()
        return None


def _attempt(context: WorkerContext, session: Session, guard: AttemptGuard, job: Job) -> Ticket | None:
    facts = {"bid": job.bid, "jid": job.jid, "state": str(job.status.status), "attempt": job.status.attempt}
    with structlog.contextvars.bound_contextvars(**facts):
        try:
            moved = _work_and_move(context, session, guard, job)
        except Stopping as reason:
            _give_back(context, session, job, str(reason))
            return None
        except (AttemptOver, Stale) as reason:
            log().warning("attempt is over", reason=str(reason))
            context.drop_session()
            return None
        except (SystemExit, KeyboardInterrupt):
            _give_back(context, session, job, "handed back by a worker that stopped")
            raise
        except (Unreachable, Ambiguous):
            raise
        except Exception:  # noqa: BLE001 - whatever it was, the lock must not stay with a living process
            log().exception("the attempt broke")
            context.drop_session()  # and with it the lock: the sweep counts how often this happens
            return None
        if moved is None:
            return None
        log().info("moved", to=str(moved.status.status), message=moved.status.message)
        if moved.status.status in STEPS:
            return jobs.ticket(moved)  # Celery's chain carries it to the next task
        after_move(context.app, session, context.settings, moved)
        return None


def _give_back(context: WorkerContext, session: Session, job: Job, reason: str) -> None:
    try:
        jobs.hand_back(session, job, context.name, message=reason)
    except Stale as overtaken:
        log().warning("attempt is over", reason=str(overtaken))


def _work_and_move(context: WorkerContext, session: Session, guard: AttemptGuard, job: Job) -> Job | None:
    """The moved job; None if it stays where it is, unlocked."""
    job_record = ZooKeeperJobRecord(session, guard)
    clients = context.clients()
    profile = cache(partial(profile_of, session, clients.profiles, job.bid, job.configuration.profile_name))
    limiter = FleetHostLimiter(session, partial(host_limit, context.settings.host_limit, profile), job.jid)
    attempt = ReportingAttempt(guard, context.progress(), job.jid)
    services = clients.step_context(job_record, attempt, limiter, profile)
    while True:
        try:
            with closing(limiter):
                outcome = _step(job, services)
        except RateLimited as turn:
            jobs.hand_back(session, job, context.name, message=turn.message, delay=turn.wait)
            return None
        except StepFailed as failure:
            return _failed(context, session, job, failure)
        if isinstance(outcome, Wait):
            jobs.hand_back(session, job, context.name, message=outcome.reason)
            return None
        guard.check()
        try:
            return jobs.move(session, job, outcome.event, context.name, done=outcome)
        except Refused as refusal:
            if refusal.path != paths.SPACE:
                raise


def _step(job: Job, services: StepContext) -> Done | Wait:
    try:
        return STEPS[job.status.status](job, services)
    except (StepFailed, AttemptOver, Unreachable, Ambiguous):
        raise
    except Exception as error:
        log().exception("a step broke")
        raise system(f"unexpected {type(error).__name__}: {error}") from error


def _failed(context: WorkerContext, session: Session, job: Job, failure: StepFailed) -> Job | None:
    """Try again later, in ZooKeeper's time, while the fault may pass; else the job fails."""
    delay = delay_before_retry(failure, job.status.tries, context.settings)
    if delay is not None:
        jobs.hand_back(session, job, context.name, message=failure.message, delay=delay, tried=True)
        log().warning("will try again", message=failure.message, seconds=delay)
        return None
    log().warning("failed", kind=str(failure.kind), message=failure.message)
    return jobs.move(session, job, Event.FAIL, context.name, message=failure.message, kind=failure.kind)


def register(context: WorkerContext) -> None:
    """Register a task for each state in STEPS."""

    def task(ticket: dict[str, Any]) -> dict[str, Any]:
        following = run(context, Ticket.model_validate(ticket))
        if following is None:
            raise Ignore
        return following.model_dump()

    for state in STEPS:
        context.app.task(name=JOB.task(state).name, shared=False)(task)
