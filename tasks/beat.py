"""Timed work. Each may run twice at once, or not at all for a while, without harm."""

from kombu.exceptions import OperationalError

from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.working_storage import capacity as working_space
from tasks import after_move as ending
from tasks import job, retention
from tasks.app import app
from tasks.broker import live_tickets
from tasks.dispatch import dispatch_batch, dispatch_failed, dispatch_job, dispatch_moved
from tasks.logs import log
from tasks.orphan_folders import ended_jobs, orphans
from tasks.worker_context import PROCESS
from zkstate import batches, callbacks, jobs, queue, recovery, space
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Refused, Stale, Unreachable
from zkstate.jobs import Lock
from zkstate.locks import ServerClock, single_flight
from zkstate.session import Session


def _alone(name: str) -> None:
    """Run one of the functions below unless it is running anywhere in the fleet."""
    try:
        session = PROCESS.session()
        with single_flight(session, name) as clock:
            if clock is not None:
                WORK[name](session, clock)
    except (Unreachable, Ambiguous) as error:
        log().warning("timed work gave up", work=name, error=str(error))
        PROCESS.drop_session()


def _feed(session: Session, _: ServerClock) -> None:
    ending.feed(session)


def _recheck_provisioning(session: Session, _: ServerClock) -> None:
    """Look at every job that waits for space, most urgent first; one that does not fit stops no other."""
    settings = PROCESS.clients().settings
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
        following = job.run(jobs.ticket(waiting))
        promised = space.promised(session).bytes
        if following is not None:
            dispatch_job(following, waiting.status.priority)


def _sweep(session: Session, clock: ServerClock) -> None:
    """Give a fresh ticket to everything that neither a worker nor a message cares for."""
    settings = PROCESS.clients().settings
    try:
        live = live_tickets(settings)
    except OperationalError as error:
        log().warning("no sweep while the broker is away", error=str(error))
        return
    found = recovery.sweep_jobs(session, live, clock, settings.max_redispatches)
    for ticket in found.tickets:
        log().warning("dispatched again", jid=ticket.id, state=ticket.state)
        dispatch_job(ticket, 0)
    for jid in found.hopeless:
        _give_up(session, jid)
    for ticket in recovery.sweep_batches(session, live, clock):
        log().warning("dispatched again", bid=ticket.id, state=ticket.state)
        dispatch_batch(ticket)
    for owed in callbacks.due(session, clock):
        if callbacks.give_out(session, owed):
            dispatch_failed(owed.jid, owed.epoch)


def _give_up(session: Session, jid: str) -> None:
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
    dispatch_moved(batches.finish_if_ended(session, failed.bid))
    dispatch_failed(failed.jid, failed.status.epoch)


def _clean_up_jobs(session: Session, _: ServerClock) -> None:
    ending.clean_up_completed(session)


def _clean_up_batches(session: Session, clock: ServerClock) -> None:
    clients = PROCESS.clients()
    retention.remove_old_batches(session, clock, clients)
    for folder in orphans(session, clients.settings.working):
        ending.remove_folder(folder)
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


def _register(name: str) -> None:
    def timed() -> None:
        _alone(name)

    app.task(name=f"beat.{name}")(timed)


for _name in WORK:
    _register(_name)
