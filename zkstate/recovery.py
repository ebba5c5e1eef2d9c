"""Finds the jobs and batches that lost their worker or their message, by the server's clock.

A record is abandoned if it is in a working state, has no lock and no message in the broker, and its delay
is over. A record that loses its worker again and again is dispatched less and less often.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from pipeline.records import FencedStatus, Ticket
from pipeline.states import BATCH, JOB, BatchState, Bucket, JobState
from zkstate import batches, jobs, paths, queue, record
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.locks import ServerClock
from zkstate.record import R, St
from zkstate.session import Session
from zkstate.statuses import BATCHES, JOBS, Kind, read_statuses

GRACE = 3.0
"""Seconds after a dispatch in which a worker may have the message but not the lock yet."""

MAX_DOUBLINGS = 4
"""Maximum doublings of GRACE, one per lost worker: 48 seconds."""

SWEEP_PAGE = 500
"""Jobs read in one sweep for one state, most urgent first."""

Live = Collection[tuple[str, int]]
"""(id, epoch) of the tickets that are still in the broker."""

_log = logging.getLogger("arkline.recovery")


@dataclass(frozen=True)
class Recovered:
    """New tickets, and the jobs that lost their worker too often to get another one."""

    tickets: tuple[Ticket, ...] = ()
    exhausted: tuple[str, ...] = ()


def sweep_jobs(session: Session, live: Live, clock: ServerClock, max_redispatches: int) -> Recovered:
    """New tickets for abandoned jobs.

    Jobs that wait for space are left to the provisioning re-check, which reads every one of them.
    """
    tickets: list[Ticket] = []
    exhausted: list[str] = []
    for state in JOB.working():
        if state is JobState.PROVISIONING:
            continue
        jids = queue.queued(session, state)[:SWEEP_PAGE]
        for jid, status in _abandoned(session, jids, JOBS, live, clock):
            if status.status is not state or (state is JobState.PENDING and status.dispatched_at is None):
                continue  # the job has moved, or has not been fed yet
            if status.redispatches >= max_redispatches:
                exhausted.append(jid)
            elif ticket := _redispatch(session, jobs.load, jid, status):
                tickets.append(ticket)
    return Recovered(tuple(tickets), tuple(exhausted))


def sweep_batches(session: Session, live: Live, clock: ServerClock, by: str) -> tuple[Ticket, ...]:
    """New tickets for abandoned batches, and for batches whose last job ended unnoticed."""
    names = sorted(session.children(paths.OPEN_BATCHES))
    tickets: list[Ticket | None] = []
    waiting: list[str] = []
    for bid, status in _abandoned(session, names, BATCHES, live, clock):
        if status.status is BatchState.PROCESSING and status.total is not None:
            waiting.append(bid)  # for its jobs
        elif status.status in BATCH.working():
            tickets.append(_redispatch(session, batches.load, bid, status))
    unended = session.exists_many([paths.bucket(bid, Bucket.PROCESSING) for bid in waiting])
    for bid, bucket in zip(waiting, unended, strict=True):
        if bucket is None or not bucket.numChildren:
            tickets.append(_finish(session, bid, by))
    return tuple(ticket for ticket in tickets if ticket is not None)


def _abandoned(
    session: Session, names: Sequence[str], kind: Kind[St], live: Live, clock: ServerClock
) -> Iterator[tuple[str, St]]:
    for name, status, locked, mtime in read_statuses(session, names, kind, _report):
        if not locked and (name, status.epoch) not in live and _is_due(status, mtime, clock):
            yield name, status


def _report(damage: Corrupt) -> None:
    _log.error("%s", damage)


def _is_due(status: FencedStatus, mtime: int, clock: ServerClock) -> bool:
    """A record that was handed back with a delay waits that delay alone: its worker was alive."""
    lost = GRACE * 2 ** min(status.redispatches, MAX_DOUBLINGS)
    wait = max(GRACE, status.delay) if status.delay else lost
    return clock.now_ms() - mtime > wait * 1000


def _redispatch(
    session: Session, load: Callable[[Session, str], R], name: str, seen: FencedStatus
) -> Ticket | None:
    try:
        loaded = load(session, name)
        if loaded.status.op != seen.op:
            return None
        return record.redispatch(session, loaded, lost=seen.delay == 0)
    except (Busy, Stale, Missing, Corrupt):
        return None  # another sweep or a worker was first, or the next sweep logs the damage


def _finish(session: Session, bid: str, by: str) -> Ticket | None:
    try:
        finished = batches.finish_if_ended(session, bid, by)
    except (Missing, Corrupt):
        return None
    return record.ticket(finished) if finished else None
