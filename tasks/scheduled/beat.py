"""Scheduled work. It may run twice at once, or not at all for a while, without harm."""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from pipeline import causes
from pipeline.outcome import Service, ServiceDown
from pipeline.records import Ticket
from pipeline.states import BATCH, JOB, Event, FailureKind, JobState
from pipeline.working_storage import capacity, mount
from tasks import retention
from tasks.after_move import after_move, clean_up_completed, feed, remove_folder, request_feed, take_requests
from tasks.broker import (
    dispatch_batch,
    dispatch_failure_callback,
    dispatch_job,
    read_queues,
)
from tasks.logs import log
from tasks.outages import begin_outage, end_outage, notify_operator, tell_subscribers, this_host
from tasks.retention import ended_jobs, orphans
from tasks.retry import giving_up
from tasks.run import JOBS, run
from tasks.scheduled import checks, fixity, inventory, notifications
from tasks.stores import count_up
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.fleet import device_logins, hosts, outages
from zkstate.fleet.scheduled import Sweep
from zkstate.queue import fairness, queue, recovery
from zkstate.queue.fairness import Live
from zkstate.record import batches, callbacks, jobs, record, space
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

SHARE = 75
"""Maximum percent of the busy processes for one submitter or collection while jobs of others wait."""


def give_turn(context: WorkerContext, session: Session, live: Live, clock: ServerClock) -> None:
    """Send the tickets of the work whose turn it is ahead of all others; ask one attempt to yield to it.

    Only one attempt per sweep: the next sweep sees the effect.
    """
    turn = fairness.next_turn(session, live, clock, SHARE)
    if turn is None:
        return
    for name in turn.names:
        with giving_up(context, locks=False, name=name):
            _dispatch_in_turn(context, session, name)
    if turn.yielding is not None:
        fairness.ask_to_yield(session, turn.yielding, anew=turn.anew)
    log().info("goes before work of others", names=turn.names, yielding=turn.yielding, anew=turn.anew)


def _dispatch_in_turn(context: WorkerContext, session: Session, name: str) -> None:
    if fairness.is_job(name):
        ticket = record.redispatch(session, jobs.load(session, name), lost=False)
        dispatch_job(context.app, ticket, in_turn=True)
    else:
        ticket = record.redispatch(session, batches.load(session, name), lost=False)
        dispatch_batch(context.app, ticket, in_turn=True)


SWEEP = "sweep"
"""The name under which the sweep moves jobs and batches."""


PACE = 8
"""In one sweep, at least one job per PACE places may end its wait, even if all places are taken."""


def _feed(context: WorkerContext, session: Session, _: ServerClock) -> None:
    take_requests(context.settings)
    feed(context.app, session, context.settings)
    # a request that came during this run did not start another one
    if take_requests(context.settings):
        request_feed(context.app, context.settings)


def _recheck_provisioning(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Run every waiting job that fits, most urgent first; a job that does not fit blocks no other.

    For a job that does not fit, failed jobs give up what they hold, and waiting ones if nothing else would
    free any. A job that never fits is run, and fails.
    """
    settings = context.settings
    waiting = list(queue.waiting_for_space(session))
    if not _working_storage_works(context, session, clock, needed=bool(waiting)) or not waiting:
        return
    reserved = space.reservations(session)
    beyond_help: float = inf
    line = {jid: place for place, (jid, _) in enumerate(waiting, 1)}
    for jid, needed in waiting:
        waits = capacity.refusal(needed, sum(reserved.values()), partial(dict, reserved), settings, jid)
        if waits and capacity.never_fits(needed, settings) is None:
            if needed >= beyond_help:
                continue
            if not retention.make_room(context, session, reserved, jid, needed, line):
                beyond_help = needed
                continue
            reserved = space.reservations(session)
        _run_provisioning(context, session, jid)
        session = context.session()  # a job that met a mistake has dropped it: those behind it do not wait
        reserved[jid] = space.reservation_of(session, jid) or 0


def _run_provisioning(context: WorkerContext, session: Session, jid: str) -> None:
    try:
        waiting = jobs.load(session, jid)
    except (Missing, Corrupt):
        return
    if waiting.status.status is not JobState.PROVISIONING:
        return
    ended = run(context, record.ticket(waiting), JOBS, scheduled=True)
    if ended.following is not None:
        dispatch_job(context.app, ended.following, waiting.status.priority)


def _working_storage_works(
    context: WorkerContext, session: Session, clock: ServerClock, *, needed: bool
) -> bool:
    """False during an outage of working storage, which ends once a file can be written there again."""
    down = bool(outages.blocking(session, [Service.WORKING_STORAGE], this_host()))
    if not down and not needed:
        return True
    try:
        mount.require(context.settings, space.WorkingStorage(session))
        if down:
            capacity.check_writable(context.settings)
            end_outage(session, Service.WORKING_STORAGE)
    except ServiceDown as fault:
        begin_outage(session, fault)
        outages.keep(session, Service.WORKING_STORAGE, clock)
        return False
    return True


def _watch_outages(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Notify operator and subscribers of outages that began or are over; forget those that are over."""
    mail_works = not outages.blocking(session, [Service.MAIL], this_host())
    for current in list(outages.known(session).values()):
        if current.outage.ended is not None or current.outage.notified:
            continue
        tell_subscribers(context, session, current.outage)
        if mail_works and outages.mark_notified(session, current):
            notify_operator(context, current.outage)
    for over in outages.forget_ended(session, clock, SWEEP, partial(tell_subscribers, context, session)):
        log().warning("outage forgotten", service=over.name)
        if over.notified:
            notify_operator(context, over)


def _sweep(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Send a new ticket for every record that has neither a worker nor a message."""
    settings = context.settings
    queued = read_queues(settings)
    if queued.foreign:
        log().warning(
            "foreign messages in Redis are left to the workers, which reject them", count=queued.foreign
        )
    live = queued.tickets
    sweep = Sweep(session, clock)
    room = settings.in_flight - queue.places_taken(session)
    pace = max(room, settings.in_flight // PACE, 1)
    recovered = recovery.sweep_jobs(
        session, live, sweep.clock, settings.max_redispatches, sweep.page, room=pace
    )
    _note_lost(context, recovered.lost)
    for ticket in recovered.tickets:
        log().warning("dispatched again", jid=ticket.id, state=ticket.state)
        sweep.count_redispatch(ticket.state)
        dispatch_job(context.app, ticket)
    for jid in recovered.exhausted:
        with giving_up(context, locks=False, jid=jid):
            _fail_exhausted(context, session, jid)
    give_turn(context, session, live, sweep.clock)
    unfinished = recovery.sweep_batches(session, live, sweep.clock, SWEEP, settings.max_redispatches)
    _note_lost(context, unfinished.lost)
    for ticket in unfinished.tickets:
        log().warning("dispatched again", bid=ticket.id, state=ticket.state)
        dispatch_batch(context.app, ticket)
    for bid in unfinished.exhausted:
        with giving_up(context, locks=False, bid=bid):
            fail_exhausted_batch(context, session, bid)
    for owed in callbacks.due(session, sweep.clock, partial(sweep.page, "callbacks")):
        if (owed.jid, owed.epoch) not in queued.callbacks and callbacks.claim(session, owed):
            dispatch_failure_callback(context.app, owed.jid, owed.epoch)
    sweep.save()


def _note_lost(context: WorkerContext, lost: Sequence[Ticket]) -> None:
    """Report the end of the tasks of vanished workers: Celery only knows the task of the message."""
    if lost and (events := context.events()):
        for ticket in lost:
            events.lost(ticket)


def _fail_exhausted(context: WorkerContext, session: Session, jid: str) -> None:
    """Fail a job that crashes its workers, unless it has moved or was handed back since it was read."""
    exhausted = jobs.load(session, jid)
    if not recovery.is_exhausted(exhausted.status, context.settings.max_redispatches):
        return
    state, count = exhausted.status.status, exhausted.status.redispatches
    if Event.FAIL not in JOB.events(state):
        return
    message = f"lost its worker {count} times while {state}: see the workers' logs, then resume the job"
    cause = causes.WORKER_LOST(state=state)
    request = JobMove(Event.FAIL, SWEEP, message, FailureKind.SYSTEM, Lock.FREE, cause)
    failed = jobs.move(session, exhausted, request)
    log().error("job failed by the sweep", jid=jid, message=message)
    after_move(context.app, session, context.settings, failed)


def fail_exhausted_batch(context: WorkerContext, session: Session, bid: str) -> None:
    """End the split or the report of a batch that crashes its workers; a report can be requested again.

    Nothing is done if the batch has moved or was handed back since it was read.
    """
    exhausted = batches.load(session, bid)
    state, count = exhausted.status.status, exhausted.status.redispatches
    reports = BATCH.facts[state].reports
    is_split = exhausted.status.total is not None and not reports
    if is_split or not recovery.is_exhausted(exhausted.status, context.settings.max_redispatches):
        return
    message = f"lost its worker {count} times while {state}: see the workers' logs"
    kind = None if reports else FailureKind.SYSTEM
    lost = causes.WORKER_LOST(state=state)
    failed = batches.move(session, exhausted, BatchMove(Event.FAIL, SWEEP, message, kind, Lock.FREE, lost))
    log().error("batch failed by the sweep", bid=bid, message=message)
    after_move(context.app, session, context.settings, failed)


def _clean_up_jobs(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    clean_up_completed(session, context.settings.working)
    hosts.remove_unused(session, clock)
    device_logins.remove_old(session, clock.now_ms())
    for folder in orphans(session, context.settings.working):
        try:
            remove_folder(folder)
        except OSError as error:  # a mount, or on NFS a file that a process has open: the others do not wait
            log().error("orphan folder not removed", folder=str(folder), error=str(error))
        else:
            log().warning("removed an orphan folder", folder=str(folder))


def _clean_up_batches(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    clients = context.clients()
    retention.remove_old_batches(session, clock, clients)
    for jid in queue.tidy_waiting(session):
        log().warning("removed an entry of a job that does not wait", jid=jid)
    for jid in clients.storage.tidy(ended_jobs(session)):
        log().warning("removed files staged for storage", jid=jid)
    retention.remove_unneeded_uploads(session, context.settings)


def _check_stores(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Compare record, storage root and inventory, and increment their mark.

    No job probes the record: this comparison ends its outage. The markers of the other stores only show that
    these can be read: jobs end their outages.
    """
    stores = context.stores()
    stores.doubt()
    stores.confirm(session)
    for service in stores.faults:
        outages.keep(session, service, clock)
    if Service.RECORD in outages.known(session) and outages.end(session, Service.RECORD):
        log().warning("outage over: a shared service works again", service=str(Service.RECORD))
    if not outages.blocking(session, [Service.INVENTORY], this_host()):
        count_up(session, context.clients().inventory)


WORK: dict[str, Callable[[WorkerContext, Session, ServerClock], None]] = {
    "feed": _feed,
    "recheck_provisioning": _recheck_provisioning,
    "sweep": _sweep,
    "check_stores": _check_stores,
    "watch_outages": _watch_outages,
    "clean_up_jobs": _clean_up_jobs,
    "clean_up_batches": _clean_up_batches,
    fixity.LOCK: fixity.run,
    fixity.WORK: fixity.run_proofs,
    checks.WORK: checks.run,
    notifications.WORK: notifications.run,
    inventory.EMBARGOES: inventory.read_embargoes,
    inventory.INDEXING: inventory.index_objects,
    inventory.GROWTH: inventory.count_growth,
}


def register(context: WorkerContext) -> None:
    for name in WORK:
        context.add_task(f"beat.{name}", partial(_run_alone, name))


def _run_alone(name: str, context: WorkerContext) -> None:
    """Run the work named `name`, unless another process of the fleet is running it."""
    with giving_up(context, work=name):
        session = context.session()
        with single_flight(session, name) as clock:
            if clock is not None:
                WORK[name](context, session, clock)
