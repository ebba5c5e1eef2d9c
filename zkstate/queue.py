"""The job queue: counts without listing, and jobs in the order of their priority."""

import logging
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter

from pipeline.records import Job, JobStatus, Ticket
from pipeline.states import JOB, JobState
from zkstate import codec, fairness, holds, jobs, paths, record
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.fairness import Quota, unlimited
from zkstate.session import Session

_log = logging.getLogger("arkline.queue")

LISTING = 1000
"""Pending jobs up to which the queue is listed whenever there is room for one more."""

IDLE_WINDOWS = 8
"""Windows of `in_flight` jobs that may not start, after which the rest of a priority is not read."""


def counts(session: Session) -> dict[JobState, int]:
    """How many jobs are in each state, without listing them."""
    states = JOB.where(lambda facts: facts.queued)
    stats = session.exists_many([paths.queue(state) for state in states])
    return {state: stat.numChildren if stat else 0 for state, stat in zip(states, stats, strict=True)}


def places_taken(jobs_in: Mapping[JobState, int]) -> int:
    """How many jobs occupy one of the places that ARKLINE_IN_FLIGHT limits."""
    return sum(jobs_in[state] for state in JOB.where(lambda facts: facts.occupies_place))


def has_entry(session: Session, job: Job) -> bool:
    """False for a completed job that has been cleaned up."""
    entry = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    return session.exists(entry) is not None


def queued(session: Session, state: JobState) -> list[str]:
    """JIDs in `state`, most urgent first, oldest first among equals."""
    names = sorted(session.children(paths.queue(state)))
    return [paths.read_queue_entry(name)[1] for name in names]


def feed(session: Session, in_flight: int, quota: Quota = unlimited) -> list[Ticket]:
    """Tickets for the pending jobs that may start now, so that at most `in_flight` jobs take a place.

    Most urgent first; among equals, collections take turns. Each job is marked as dispatched before
    its ticket is returned, so two feeders at once dispatch each job once.
    """
    if holds.paused(session) is not None:
        return []
    waiting = counts(session)
    room = in_flight - places_taken(waiting)
    backlog = waiting[JobState.PENDING]
    if room <= 0 or not backlog or (backlog > LISTING and room < in_flight // 4):
        return []
    collections = fairness.open_collections(session)
    if fairness.matters(collections, quota):
        return _dispatch_in_turn(session, room, in_flight, quota, collections)
    return _dispatch_in_order(session, room, in_flight)


def _dispatch_in_order(session: Session, room: int, in_flight: int) -> list[Ticket]:
    """Dispatch up to `room` jobs in the order of the queue; `in_flight` jobs are read at a time."""
    jids = queued(session, JobState.PENDING)
    tickets: list[Ticket] = []
    for start in range(0, len(jids), in_flight):
        undispatched, dispatched = _by_dispatch(session, jids[start : start + in_flight])
        room -= len(dispatched)
        for jid in undispatched:
            if len(tickets) >= room:
                break
            if ticket := _dispatch(session, jid):
                tickets.append(ticket)
        if len(tickets) >= room:
            break
    return tickets


def _dispatch_in_turn(
    session: Session, room: int, in_flight: int, quota: Quota, collections: Mapping[str, list[str]]
) -> list[Ticket]:
    """Dispatch up to `room` jobs, most urgent first; inside a priority, collections take turns."""
    load = fairness.at_work(session)
    tickets: list[Ticket] = []
    for jids in _pending_by_priority(session):
        idle_windows = 0
        for window in _windows(session, jids, collections, in_flight):
            undispatched, dispatched = _by_dispatch(session, list(window))
            load.update(window[jid] for jid in dispatched)
            room -= len(dispatched)
            waiting = {jid: window[jid] for jid in undispatched}
            new = _dispatch_turns(session, fairness.turns(waiting, load, quota), room - len(tickets))
            tickets += new
            if len(tickets) >= room or fairness.all_full(collections, load, quota):
                return tickets
            idle_windows = 0 if new or dispatched else idle_windows + 1
            if idle_windows == IDLE_WINDOWS:
                break
    return tickets


def _pending_by_priority(session: Session) -> Iterator[list[str]]:
    """The JIDs of each priority, most urgent first."""
    entries = map(paths.read_queue_entry, sorted(session.children(paths.queue(JobState.PENDING))))
    for _, group in groupby(entries, key=itemgetter(0)):
        yield [jid for _, jid in group]


def _windows(
    session: Session, jids: list[str], collections: Mapping[str, list[str]], size: int
) -> Iterator[dict[str, str]]:
    """JID -> collection, for `size` jobs of the queue at a time.

    The first window also has jobs from further behind, of collections with few jobs at the front.
    """
    seen: set[str] = set()
    for start in range(0, len(jids), size):
        window = fairness.of_jobs(session, [jid for jid in jids[start : start + size] if jid not in seen])
        if start == 0 and len(jids) > size:
            window |= fairness.elsewhere(session, set(jids), window, collections, size)
        seen.update(window)
        yield window


def _dispatch_turns(session: Session, turns: Iterator[str], room: int) -> list[Ticket]:
    tickets: list[Ticket] = []
    while len(tickets) < room and (jid := next(turns, None)) is not None:
        if ticket := _dispatch(session, jid):
            tickets.append(ticket)
    return tickets


def _by_dispatch(session: Session, jids: list[str]) -> tuple[list[str], list[str]]:
    """The jobs without a ticket, and the jobs whose ticket a worker is about to take.

    A job that waits for its next try is in neither: a source that is down must not block all others.
    """
    nodes = [paths.job_status(jid) for jid in jids]
    statuses = {}
    for jid, path, node in zip(jids, nodes, session.get_many(nodes), strict=True):
        try:
            if node is not None:
                statuses[jid] = codec.decode(JobStatus, node[0], path)
        except Corrupt as damage:
            _log.error("%s", damage)
    undispatched = [jid for jid, status in statuses.items() if status.dispatched_at is None]
    dispatched = [
        jid for jid, status in statuses.items() if status.dispatched_at is not None and status.delay == 0
    ]
    return undispatched, dispatched


def _dispatch(session: Session, jid: str) -> Ticket | None:
    """The job's ticket; None if another feeder was faster, or the job cannot be read."""
    try:
        job = jobs.load(session, jid)
        if job.status.status is not JobState.PENDING or job.status.dispatched_at is not None:
            return None
        return record.redispatch(session, job, lost=False)
    except (Busy, Stale):
        return None
    except (Missing, Corrupt) as damage:
        _log.error("%s", damage)
        return None


def waiting_for_space(session: Session) -> Iterator[tuple[str, int]]:
    """(JID, bytes needed) of every job that waits for working storage, most urgent first."""
    waiting = queued(session, JobState.PROVISIONING)
    for start in range(0, len(waiting), LISTING):
        jids = waiting[start : start + LISTING]
        nodes = [paths.space_needed(jid) for jid in jids]
        for jid, path, node in zip(jids, nodes, session.get_many(nodes), strict=True):
            try:
                if node is not None:
                    yield jid, codec.decode_int(node[0], path)
            except Corrupt as damage:
                _log.error("%s", damage)
