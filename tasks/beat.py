"""Periodic work. It may run twice at once, or not at all for a while, without harm."""

from collections.abc import Callable

from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.working_storage import capacity as working_space
from tasks import job, retention
from tasks.after_move import after_move, clean_up_completed, feed, remove_folder
from tasks.broker import live_tickets
from tasks.dispatch import dispatch_batch, dispatch_failure_callback, dispatch_job
from tasks.logs import log
from tasks.orphan_folders import ended_jobs, orphans
from tasks.run import giving_up
from tasks.worker_context import WorkerContext
from zkstate import callbacks, jobs, queue, record, recovery, space
from zkstate.errors import Corrupt, Missing
from zkstate.jobs import JobMove
from zkstate.locks import ServerClock, single_flight
from zkstate.record import Lock
from zkstate.session import Session

SWEEP = "sweep"
"""The name under which the sweep moves jobs and batches."""


def _feed(context: WorkerContext, session: Session, _: ServerClock) -> None:
    feed(context.app, session, context.settings)


def _recheck_provisioning(context: WorkerContext, session: Session, _: ServerClock) -> None:
    """Run every waiting job that fits, most urgent first; a job that does not fit blocks no other."""
    reserved = space.promised(session).bytes
    for jid, needed in queue.waiting_for_space(session):
        if working_space.refusal(needed, reserved, context.settings) is not None:
            continue
        try:
            waiting = jobs.load(session, jid)
        except (Missing, Corrupt):
            continue
        if waiting.status.status is not JobState.PROVISIONING:
            continue
        following = job.run(context, record.ticket(waiting))
        reserved = space.promised(session).bytes
        if following is not None:
            dispatch_job(context.app, following, waiting.status.priority)


def _sweep(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Send a new ticket for everything that has neither a worker nor a message."""
    settings = context.settings
    live = live_tickets(settings)
    recovered = recovery.sweep_jobs(session, live, clock, settings.max_redispatches)
    for ticket in recovered.tickets:
        log().warning("dispatched again", jid=ticket.id, state=ticket.state)
        dispatch_job(context.app, ticket, 0)
    for jid in recovered.exhausted:
        with giving_up(context, jid=jid):
            _fail_exhausted(context, session, jid)
    for ticket in recovery.sweep_batches(session, live, clock, SWEEP):
        log().warning("dispatched again", bid=ticket.id, state=ticket.state)
        dispatch_batch(context.app, ticket)
    for owed in callbacks.due(session, clock):
        if callbacks.claim(session, owed):
            dispatch_failure_callback(context.app, owed.jid, owed.epoch)


def _fail_exhausted(context: WorkerContext, session: Session, jid: str) -> None:
    """Fail a job that crashes its workers."""
    exhausted = jobs.load(session, jid)
    state, count = exhausted.status.status, exhausted.status.redispatches
    if Event.FAIL not in JOB.events(state):
        return
    message = f"lost its worker {count} times while {state}: see the workers' logs, then resume the job"
    request = JobMove(Event.FAIL, SWEEP, message=message, kind=FailureKind.SYSTEM, lock=Lock.FREE)
    failed = jobs.move(session, exhausted, request)
    log().error("job failed by the sweep", jid=jid, message=message)
    after_move(context.app, session, context.settings, failed)


def _clean_up_jobs(_: WorkerContext, session: Session, __: ServerClock) -> None:
    clean_up_completed(session)


def _clean_up_batches(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    clients = context.clients()
    retention.remove_old_batches(session, clock, clients)
    for folder in orphans(session, context.settings.working):
        remove_folder(folder)
        log().warning("removed an orphan folder", folder=str(folder))
    for jid in clients.storage.tidy(ended_jobs(session)):
        log().warning("removed files staged for storage", jid=jid)


WORK: dict[str, Callable[[WorkerContext, Session, ServerClock], None]] = {
    "feed": _feed,
    "recheck_provisioning": _recheck_provisioning,
    "sweep": _sweep,
    "clean_up_jobs": _clean_up_jobs,
    "clean_up_batches": _clean_up_batches,
}


def run_alone(context: WorkerContext, name: str) -> None:
    """Run the work of this name, unless another process of the fleet is running it."""
    with giving_up(context, work=name):
        session = context.session()
        with single_flight(session, name) as clock:
            if clock is not None:
                WORK[name](context, session, clock)


def register(context: WorkerContext) -> None:
    for name in WORK:
        _register(context, name)


def _register(context: WorkerContext, name: str) -> None:
    def task() -> None:
        run_alone(context, name)

    context.app.task(name=f"beat.{name}", shared=False)(task)
