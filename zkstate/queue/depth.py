"""What the workers of each queue have to do now, as the record says.

Reads: the statuses and the locks of at most SAMPLE jobs of each state in which a worker works, and of SAMPLE
open batches: two for each, some 130 with the 64 places of the default, 2,800 at most. Pending jobs are
counted, never read.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pipeline.machine import Queue
from pipeline.records import Record
from pipeline.states import BATCH, JOB, BatchState
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.queue import listings, queue
from zkstate.queue.listings import SAMPLE
from zkstate.record.node import ignore_damage
from zkstate.record.record import BATCHES, JOBS, read_statuses


class Depth(Record):
    """The jobs and batches whose next step a worker of one queue does."""

    waiting: int = 0
    """Those that a process could begin with now: what waits for a retry, a source or space is not."""
    working: int = 0
    """Those that a process works on."""
    oldest: datetime | None = None
    """When the first of those waiting came to its state; pending jobs are left out."""


class _Entry(NamedTuple):
    queue: Queue
    number: int
    locked: bool = False
    since: datetime | None = None


def depths(session: Session, in_flight: int) -> dict[Queue, Depth]:
    """The depth of every queue; `in_flight`: the places of the fleet.

    Of the pending jobs those count for which there is a place: no number of workers could begin with others.
    """
    entries = (*_jobs(session, in_flight), *_batches(session))
    return {name: _depth([entry for entry in entries if entry.queue is name]) for name in Queue}


def _depth(entries: list[_Entry]) -> Depth:
    return Depth(
        waiting=sum(entry.number for entry in entries if not entry.locked),
        working=sum(entry.number for entry in entries if entry.locked),
        oldest=min((entry.since for entry in entries if entry.since and not entry.locked), default=None),
    )


def _jobs(session: Session, in_flight: int) -> Iterator[_Entry]:
    pending, *working = JOB.working()
    if holds.paused(session) is None:
        free = max(0, in_flight - queue.places_taken(session))
        yield _Entry(JOB.task(pending).queue, min(queue.counts(session)[pending], free))
    for state in working:
        jids, served = queue.queued(session, state), JOB.task(state).queue
        for _, status, locked, _ in read_statuses(session, jids[:SAMPLE], JOBS, ignore_damage):
            if status.status is state and (locked or not status.handed_back):
                yield _Entry(served, 1, locked, status.since)
        yield _Entry(served, max(0, len(jids) - SAMPLE))


def _batches(session: Session) -> Iterator[_Entry]:
    bids = listings.open_batches(session)
    for _, status, locked, _ in read_statuses(session, bids[:SAMPLE], BATCHES, ignore_damage):
        split = status.status is BatchState.PROCESSING and status.total is not None
        if status.status in BATCH.working() and not split and (locked or not status.handed_back):
            yield _Entry(BATCH.task(status.status).queue, 1, locked, status.since)
