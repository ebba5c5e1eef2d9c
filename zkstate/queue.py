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

IDLE = 8
"""Looks at the line, in_flight jobs each, after which jobs that may not be taken up are passed over."""


def counts(session: Session) -> dict[JobState, int]:
    states = JOB.where(lambda facts: facts.queued)
    found = session.exists_many([paths.queue(state) for state in states])
    return {s: stat.numChildren if stat else 0 for s, stat in zip(states, found, strict=True)}


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
    """Tickets for the pending jobs that may be taken up now, so that at most `in_flight` are at work.

    Most urgent first; among equals, collections in turn. Each job is marked as dispatched before its ticket
    is given out; two feeders at once mark each job once.
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
        return _in_turn(session, room, in_flight, quota, collections)
    return _in_line(session, room, in_flight)


def _in_line(session: Session, room: int, in_flight: int) -> list[Ticket]:
    waiting_line = queued(session, JobState.PENDING)
    tickets: list[Ticket] = []
    for start in range(0, len(waiting_line), in_flight):
        fresh, taken = _sort_out(session, waiting_line[start : start + in_flight])
        room -= len(taken)
        given = [ticket for jid in fresh[: max(room, 0)] if (ticket := _mark(session, jid))]
        tickets += given
        room -= len(given)
        if room <= 0:
            break
    return tickets


def _in_turn(
    session: Session, room: int, in_flight: int, quota: Quota, collections: Mapping[str, list[str]]
) -> list[Ticket]:
    load = fairness.at_work(session)
    tickets: list[Ticket] = []
    entries = map(paths.read_queue_entry, sorted(session.children(paths.queue(JobState.PENDING))))
    for _, group in groupby(entries, key=itemgetter(0)):
        line = [jid for _, jid in group]
        front: dict[str, str] = {}
        idle = 0
        for start in range(0, len(line), in_flight):
            look = [jid for jid in line[start : start + in_flight] if jid not in front]
            found = fairness.of_jobs(session, look)
            if not start and len(line) > in_flight:
                found |= fairness.elsewhere(session, set(line), found, collections, in_flight)
            front |= found
            fresh, taken = _sort_out(session, list(found))
            load.update(front[jid] for jid in taken)
            room -= len(taken)
            given = 0
            for jid in fairness.turns({jid: front[jid] for jid in fresh}, load, quota):
                if room <= 0:
                    return tickets
                if ticket := _mark(session, jid):
                    tickets.append(ticket)
                    room, given = room - 1, given + 1
            if fairness.all_full(collections, load, quota):
                return tickets
            idle = 0 if given or taken else idle + 1
            if idle == IDLE or room <= 0:
                break
    return tickets


def _sort_out(session: Session, jids: list[str]) -> tuple[list[str], list[str]]:
    """Which of these have no ticket yet, and which are being taken up right now.

    One that waits to be tried again takes up no room: a dead source must not stop everybody.
    """
    wanted = [paths.job_status(jid) for jid in jids]
    statuses = {}
    for jid, path, node in zip(jids, wanted, session.get_many(wanted), strict=True):
        try:
            if node is not None:
                statuses[jid] = codec.decode(JobStatus, node[0], path)
        except Corrupt as damage:
            _log.error("%s", damage)
    fresh = [jid for jid, status in statuses.items() if status.dispatched_at is None]
    taken = [jid for jid, s in statuses.items() if s.dispatched_at is not None and s.delay == 0]
    return fresh, taken


def _mark(session: Session, jid: str) -> Ticket | None:
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
    line = queued(session, JobState.PROVISIONING)
    for start in range(0, len(line), LISTING):
        jids = line[start : start + LISTING]
        wanted = [paths.space_needed(jid) for jid in jids]
        for jid, path, node in zip(jids, wanted, session.get_many(wanted), strict=True):
            try:
                if node is not None:
                    yield jid, codec.decode_int(node[0], path)
            except Corrupt as damage:
                _log.error("%s", damage)
