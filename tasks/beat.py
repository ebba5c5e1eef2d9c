"""Timed work. Each may run twice at once, or not at all for a while, without harm."""

from kombu.exceptions import OperationalError

from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.working_storage import capacity as working_space
from tasks import job, retention
from tasks.after_move import after_move, clean_up_completed, feed, remove_folder
from tasks.broker import live_tickets
from tasks.dispatch import dispatch_batch, dispatch_failure_callback, dispatch_job
from tasks.logs import log
from tasks.orphan_folders import ended_jobs, orphans
from tasks.worker_context import WorkerContext
from zkstate import callbacks, jobs, queue, recovery, space
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Refused, Stale, Unreachable
from zkstate.jobs import Lock
from zkstate.locks import ServerClock, single_flight
from zkstate.session import Session


def _alone(context: WorkerContext, name: str) -> None:
    """Run one of the functions below unless it is running anywhere in the fleet."""
    try:
        session = context.session()
        with single_flight(session, name) as clock:
            if clock is not None:
                WORK[name](context, session, clock)
    except (Unreachable, Ambiguous) as error:
        log().warning("timed work gave up", work=name, error=str(error))
        context.drop_session()


def _feed(context: WorkerContext, session: Session, _: ServerClock) -> None:
    feed(context.app, session, context.settings)


def _recheck_provisioning(context: WorkerContext, session: Session, _: ServerClock) -> None:
    """Look at every job that waits for space, most urgent first; one that does not fit stops no other."""
    settings = context.settings
    promised = space.promised(session).bytes
    for jid, needed in queue.waiting_for_space(session):
        if working_space.refusal(needed, promised, settings) is not None:
            continue
        try:
            waiting = jobs.load(session, jid)
        except (Missing, Corrupt):
            continue
        if waiting.status.status is not JobState.PROVISIONING:
            continue
        following = job.run(context, jobs.ticket(waiting))
        promised = space.promised(session).bytes
        if following is not None:
            dispatch_job(context.app, following, waiting.status.priority)


def _sweep(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Give a fresh ticket to everything that neither a worker nor a message cares for."""
    settings = context.settings
    try:
        live = live_tickets(settings)
    except OperationalError as error:
        log().warning("no sweep while the broker is away", error=str(error))
        return
    found = recovery.sweep_jobs(session, live, clock, settings.max_redispatches)
    for ticket in found.tickets:
        log().warning("dispatched again", jid=ticket.id, state=ticket.state)
        dispatch_job(context.app, ticket, 0)
    for jid in found.hopeless:
        _give_up(context, session, jid)
    for ticket in recovery.sweep_batches(session, live, clock):
        log().warning("dispatched again", bid=ticket.id, state=ticket.state)
        dispatch_batch(context.app, ticket)
    for owed in callbacks.due(session, clock):
        if callbacks.give_out(session, owed):
            dispatch_failure_callback(context.app, owed.jid, owed.epoch)


def _give_up(context: WorkerContext, session: Session, jid: str) -> None:
    try:
        lost = jobs.load(session, jid)
        if Event.FAIL not in JOB.events(lost.status.status):
            return
        message = (
            f"lost its worker {lost.status.redispatches} times while {lost.status.status}: "
            "see the workers' logs for what kills them, then resume it"
        )
        failed = jobs.move(
            session,
            lost,
            Event.FAIL,
            "sweep",
            message=message,
            kind=FailureKind.SYSTEM,
            lock=Lock.FREE,
        )
    except (Stale, Busy, Missing):
        return
    except (Refused, Corrupt) as damage:
        log().error("cannot be given up", jid=jid, error=str(damage))
        return
    log().error("gave up", jid=jid, message=message)
    after_move(context.app, session, context.settings, failed)


def _clean_up_jobs(context: WorkerContext, session: Session, _: ServerClock) -> None:
    clean_up_completed(session)


def _clean_up_batches(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    clients = context.clients()
    retention.remove_old_batches(session, clock, clients)
    for folder in orphans(session, context.settings.working):
        remove_folder(folder)
        log().warning("removed an orphan", folder=str(folder))
    for jid in clients.storage.tidy(ended_jobs(session)):
        log().warning("removed what was prepared for storage", jid=jid)


WORK = {
    "feed": _feed,
    "recheck_provisioning": _recheck_provisioning,
    "sweep": _sweep,
    "clean_up_jobs": _clean_up_jobs,
    "clean_up_batches": _clean_up_batches,
}


def register(context: WorkerContext) -> None:
    for name in WORK:
        _register(context, name)


def _register(context: WorkerContext, name: str) -> None:
    def task() -> None:
        _alone(context, name)

    context.app.task(name=f"beat.{name}", shared=False)(task)
