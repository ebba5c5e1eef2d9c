"""The job queue: counts without listing, and jobs in the order of their priority."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice
from operator import itemgetter

from pydantic import Field

from pipeline.records import Job, JobStatus, Priority, Ticket
from pipeline.states import OCCUPYING, QUEUED, JobState
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Delete, Operation, Put, Role, commit
from zkstate.errors import Ambiguous, Busy, Contended, Corrupt, Missing, Stale
from zkstate.fleet import holds
from zkstate.queue import fairness
from zkstate.queue.fairness import NO_LIMITS, Limits, Load, Party
from zkstate.record import jobs, record
from zkstate.record.node import log_damage, read_each


class PendingTicket(Ticket):
    """The ticket of a pending job; its message contains the ticket without the priority."""

    priority: Priority = Field(exclude=True)


@dataclass(frozen=True)
class Fed:
    """The result of one feed."""

    tickets: list[PendingTicket] = field(default_factory=list)
    complete: bool = False
    """Whether every pending job has a ticket, except those that wait for a retry."""


Undispatched = dict[str, tuple[JobStatus, int]]
"""JID -> the status of a job without a ticket, and its version."""

WAITING_LIMIT = 1000
"""Maximum jobs that wait with reserved working storage and take no place."""

LISTING = 1000
"""Maximum pending jobs for which the queue is listed whenever there is room for one more."""

MARKED = 32
"""Maximum jobs that are dispatched in one transaction."""

IDLE_WINDOWS = 8
"""Consecutive windows of `in_flight` jobs without one that may start, after which a priority is skipped."""


def counts(session: Session) -> dict[JobState, int]:
    """How many jobs are in each state, without listing them."""
    return dict(zip(QUEUED, session.count_children(*map(paths.queue, QUEUED)), strict=True))


def places_taken(session: Session) -> int:
    """How many of the places that ARKLINE_IN_FLIGHT limits are occupied.

    A job that waits takes none, unless more than WAITING_LIMIT jobs wait with reserved working storage.
    """
    places = map(paths.queue, OCCUPYING)
    waiting, reserved, *working = session.count_children(paths.WAITING, paths.SPACE, *places)
    beyond = max(0, min(waiting, reserved) - WAITING_LIMIT)
    return sum(working) - waiting + beyond


def tidy_waiting(session: Session) -> list[str]:
    """Delete entries of jobs that do not wait, left by a release without this list; returns their JIDs."""
    jids = session.children(paths.WAITING)
    nodes = session.get_many([paths.job_status(jid) for jid in jids])
    removed = []
    for jid, node in zip(jids, nodes, strict=True):
        delete = Delete(paths.waiting(jid), role=Role.SHARED)
        if node is not None and _may_wait(jid, node[0]):
            continue
        fence = [Check(paths.job_status(jid), node[1].version)] if node is not None else []
        try:
            commit(session, [*fence, delete])
        except (Stale, Contended):
            continue  # the job moved: the next run checks it again
        removed.append(jid)
    return removed


def _may_wait(jid: str, status: bytes) -> bool:
    """True also for a job whose status cannot be read, until a repair."""
    try:
        waits_for = codec.decode(JobStatus, status, paths.job_status(jid)).waits_for
    except Corrupt as damage:
        log_damage(damage)
        return True
    return waits_for is not None and waits_for.listed


def has_entry(session: Session, job: Job) -> bool:
    """False for a completed job that has been cleaned up."""
    entry = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    return session.exists(entry) is not None


def entries(session: Session, state: JobState) -> list[str]:
    """The entries of the queue of `state`, most urgent first, oldest first among equals."""
    return session.children(paths.queue(state))


def queued(session: Session, state: JobState) -> list[str]:
    """JIDs in `state`, in the order of the queue."""
    return [jid for _, jid in paths.read_queue_entries(entries(session, state))]


def ahead_of(session: Session, job: Job) -> int:
    """The number of jobs before this one in the queue of its state, counted without sorting."""
    own = paths.queue_entry(job.status.status, job.status.priority, job.jid).rpartition("/")[2]
    return sum(name < own for name in session.children(paths.queue(job.status.status)))


def feed(session: Session, in_flight: int, limits: Limits = NO_LIMITS) -> Fed:
    """Tickets for the pending jobs that may start now, so that at most `in_flight` jobs take a place.

    Most urgent first; among equals, collections take turns. Each job is marked as dispatched before
    its ticket is returned, so two feeders at once dispatch each job once.
    """
    if holds.paused(session) is not None:
        return Fed()
    (backlog,) = session.count_children(paths.queue(JobState.PENDING))
    if not backlog:
        return Fed(complete=True)
    taken = places_taken(session)
    if not _is_worth_listing(backlog, in_flight - taken, in_flight):
        return Fed()
    parties = fairness.open_batches(session)
    if not fairness.matters(parties, limits):
        # all occupied places belong to the only collection: its share needs no further read
        places = in_flight if limits.share is None else min(in_flight, limits.share)
        if not _is_worth_listing(backlog, places - taken, places):
            return Fed()
        return _dispatch_pending(session, places - taken, places - taken, NO_LIMITS, {})
    return _dispatch_pending(session, in_flight - taken, in_flight, limits, parties)


def _is_worth_listing(backlog: int, room: int, places: int) -> bool:
    """A long queue is listed only for many jobs at a time."""
    return room > 0 and (backlog <= LISTING or room >= places // 4)


def _dispatch_pending(
    session: Session, room: int, in_flight: int, limits: Limits, parties: Mapping[Party, list[str]]
) -> Fed:
    """Dispatch up to `room` jobs, most urgent first; within a priority, collections take turns.

    Without `parties` the order of the queue alone decides, and no job's collection is read.
    """
    in_turn = bool(parties)
    load = fairness.at_work(session) if in_turn else Load()
    tickets: list[PendingTicket] = []
    left = False
    for entries in _pending_by_priority(session):
        idle_windows = 0
        for window in _windows(session, entries, parties, in_flight):
            undispatched, dispatched = _by_dispatch(session, list(window))
            load.add(window[jid] for jid in dispatched)
            room -= len(dispatched)
            waiting = {jid: window[jid] for jid in undispatched}
            turns = fairness.turns(waiting, load, limits)
            new = _dispatch_in_turn(session, turns, undispatched, max(0, room - len(tickets)))
            tickets += new
            left = left or len(new) < len(undispatched)
            if len(tickets) >= room or (in_turn and fairness.all_full(parties, load, limits)):
                return Fed(tickets)
            idle_windows = 0 if new or dispatched else idle_windows + 1
            if in_turn and idle_windows == IDLE_WINDOWS:
                left = True
                break
    return Fed(tickets, complete=not left)


def _pending_by_priority(session: Session) -> Iterator[list[str]]:
    """The queue entries of each priority, most urgent first.

    They are not parsed here: of 100,000 entries a feed uses a few hundred.
    """
    for _, group in groupby(entries(session, JobState.PENDING), key=itemgetter(slice(2))):
        yield list(group)


def _windows(
    session: Session, entries: list[str], parties: Mapping[Party, list[str]], size: int
) -> Iterator[dict[str, Party]]:
    """JID -> party, for `size` jobs of the queue at a time; without `parties` nothing is read.

    The first window also has jobs from further behind, of parties with few jobs at the front.
    """
    seen: set[str] = set()
    for start in range(0, len(entries), size):
        named = paths.read_queue_entries(entries[start : start + size])
        front = [jid for _, jid in named if jid not in seen]
        if not parties:
            yield dict.fromkeys(front, Party(""))
            continue
        window = fairness.of_jobs(session, front)
        if start == 0 and len(entries) > size:
            pending = {jid for _, jid in paths.read_queue_entries(entries)}
            window |= fairness.elsewhere(session, pending, window, parties, size)
        seen.update(window)
        yield window


def _by_dispatch(session: Session, jids: list[str]) -> tuple[Undispatched, list[str]]:
    """The jobs without a ticket, and the jobs whose ticket a worker is about to take.

    A job that waits for its next try is in neither: a source that is down must not block all others.
    """
    undispatched: Undispatched = {}
    dispatched = []
    for jid, status, stat in read_each(session, jids, paths.job_status, partial(codec.decode, JobStatus)):
        if status.dispatched_at is None:
            undispatched[jid] = status, stat.version
        elif status.delay == 0:
            dispatched.append(jid)
    return undispatched, dispatched


def _dispatch_in_turn(
    session: Session, turns: Iterator[str], undispatched: Undispatched, room: int
) -> list[PendingTicket]:
    """Tickets of the first `room` jobs that are dispatched."""
    tickets: list[PendingTicket] = []
    while jids := list(islice(turns, min(MARKED, room - len(tickets)))):
        tickets += _mark(session, {jid: undispatched[jid] for jid in jids})
    return tickets


def _mark(session: Session, undispatched: Undispatched) -> list[PendingTicket]:
    """Dispatch all jobs in one transaction; one by one if a feeder or an operator was first with one."""
    operations: list[Operation] = []
    tickets = []
    for jid, (status, version) in undispatched.items():
        if status.status is not JobState.PENDING:
            continue
        marked = record.dispatched(status)
        operations += [
            Put(paths.job_status(jid), codec.encode(marked), version, role=Role.FENCE),
            *record.require_free(paths.job_lock(jid)),
        ]
        tickets.append(_ticket(jid, marked))
    try:
        if operations:
            commit(session, operations)
    except (Busy, Stale, Ambiguous):
        return [ticket for jid in undispatched if (ticket := _dispatch(session, jid))]
    return tickets


def _ticket(jid: str, status: JobStatus) -> PendingTicket:
    return PendingTicket(id=jid, state=status.status, epoch=status.epoch, priority=status.priority)


def _dispatch(session: Session, jid: str) -> PendingTicket | None:
    """The job's ticket; None if another feeder was first, or the job cannot be read."""
    try:
        job = jobs.load(session, jid)
        if job.status.status is not JobState.PENDING or job.status.dispatched_at is not None:
            return None
        return PendingTicket(
            **record.redispatch(session, job, lost=False).model_dump(), priority=job.status.priority
        )
    except (Busy, Stale):
        return None
    except (Missing, Corrupt) as damage:
        log_damage(damage)
        return None


def waiting_for_space(session: Session) -> Iterator[tuple[str, int]]:
    """(JID, bytes needed) of every job that waits for working storage, most urgent first."""
    waiting = queued(session, JobState.PROVISIONING)
    for start in range(0, len(waiting), LISTING):
        jids = waiting[start : start + LISTING]
        for jid, needed, _ in read_each(session, jids, paths.space_needed, codec.decode_int):
            yield jid, needed
