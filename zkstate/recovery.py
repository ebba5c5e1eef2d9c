"""Finds what lost its worker or its message, by the server's clock, without flooding anybody."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pipeline.records import BatchStatus, JobStatus, Ticket
from pipeline.states import BATCH, JOB, BatchState, Bucket, JobState
from zkstate import batches, codec, jobs, paths, queue
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.locks import ServerClock
from zkstate.session import Session

GRACE = 3.0
"""Seconds after a dispatch in which a message may be in a worker's hand, neither queued nor acquired."""

MOST_DOUBLINGS = 4
"""Of GRACE, with each time that a worker was lost: 48 seconds at the end."""

PASS = 500
"""Jobs looked at for each state in one pass, most urgent first."""

Live = Collection[tuple[str, int]]
"""(id, epoch) of the tickets that still lie in the broker."""

_log = logging.getLogger("arkline.recovery")

St = TypeVar("St", JobStatus, BatchStatus)


@dataclass(frozen=True)
class Recovered:
    """Fresh tickets, and the jobs that lost their worker too often to be given another."""

    tickets: tuple[Ticket, ...] = ()
    hopeless: tuple[str, ...] = ()


def sweep_jobs(session: Session, live: Live, clock: ServerClock, most: int) -> Recovered:
    """Fresh tickets for the jobs that nobody works on and no message speaks of.

    Jobs that wait for space are left to the provisioning re-check, which looks at every one of them.
    """
    tickets: list[Ticket] = []
    hopeless: list[str] = []
    for state in JOB.working():
        if state is JobState.PROVISIONING:
            continue
        for jid, status in _orphans(session, state, live, clock):
            if status.redispatches >= most:
                hopeless.append(jid)
            elif ticket := _again(session, jid, status):
                tickets.append(ticket)
    return Recovered(tuple(tickets), tuple(hopeless))


def _orphans(
    session: Session, state: JobState, live: Live, clock: ServerClock
) -> Iterable[tuple[str, JobStatus]]:
    jids = queue.queued(session, state)[:PASS]
    statuses = [paths.job_status(jid) for jid in jids]
    held = session.exists_many([paths.job_lock(jid) for jid in jids])
    found = session.get_many(statuses)
    for jid, path, lock, node in zip(jids, statuses, held, found, strict=True):
        if lock is not None or node is None:
            continue
        try:
            status = codec.decode(JobStatus, node[0], path)
        except Corrupt as damage:
            _log.error("%s", damage)
            continue
        never_fed = state is JobState.PENDING and status.dispatched_at is None
        if status.status is state and not never_fed and _due(jid, status, node[1].mtime, live, clock):
            yield jid, status


def _due(name: str, status: St, mtime: int, live: Live, clock: ServerClock) -> bool:
    """Whatever loses its worker again and again is tried less and less often.

    One that was handed back with a delay has just shown that its worker lives: it waits that delay alone.
    """
    lost = GRACE * 2 ** min(status.redispatches, MOST_DOUBLINGS)
    patience = max(GRACE, status.delay) if status.delay else lost
    waited = (clock.now_ms() - mtime) / 1000
    return waited > patience and (name, status.epoch) not in live


def _again(session: Session, jid: str, seen: JobStatus) -> Ticket | None:
    try:
        job = jobs.load(session, jid)
        if job.status.op != seen.op:
            return None
        return jobs.redispatch(session, job, lost=seen.delay == 0)
    except (Busy, Stale, Missing, Corrupt):
        return None


def sweep_batches(session: Session, live: Live, clock: ServerClock) -> tuple[Ticket, ...]:
    """Fresh tickets for the batches that nobody works on and no message speaks of."""
    bids = sorted(session.children(paths.OPEN_BATCHES))
    statuses = [paths.batch_status(bid) for bid in bids]
    held = session.exists_many([paths.batch_lock(bid) for bid in bids])
    ended = session.exists_many([paths.bucket(bid, Bucket.PROCESSING) for bid in bids])
    tickets = []
    found = session.get_many(statuses)
    for bid, path, lock, rest, node in zip(bids, statuses, held, ended, found, strict=True):
        if lock is not None or node is None:
            continue
        try:
            status = codec.decode(BatchStatus, node[0], path)
        except Corrupt as damage:
            _log.error("%s", damage)
            continue
        if status.status not in BATCH.working() or not _due(bid, status, node[1].mtime, live, clock):
            continue
        at_work = status.status is BatchState.PROCESSING and status.total is not None
        if at_work and rest is not None and rest.numChildren:
            continue
        if ticket := _batch_again(session, bid, at_work):
            tickets.append(ticket)
    return tuple(tickets)


def _batch_again(session: Session, bid: str, at_work: bool) -> Ticket | None:
    try:
        if at_work:
            finished = batches.finish_if_ended(session, bid)
            return batches.ticket(finished) if finished else None
        return batches.redispatch(session, batches.load(session, bid))
    except (Busy, Stale, Missing, Corrupt):
        return None
