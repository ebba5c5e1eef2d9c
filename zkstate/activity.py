"""The activity of the fleet: a bounded sample of the active jobs and batches."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pipeline.outcome import WaitsFor
from pipeline.records import BatchStatus, JobStatus, Record
from pipeline.states import BATCH, JOB, JobState
from zkstate import ownership, paths, queue
from zkstate.reading import BATCHES, JOBS, ignore_damage, read_statuses
from zkstate.session import Session

SAMPLE = 200
"""Jobs of one state, and batches, that are read; more are active only if ARKLINE_IN_FLIGHT is larger."""

BACKLOG = 5_000
"""Pending jobs up to which the queue is listed for those that were dispatched already."""


class Active(Record):
    """A job or a batch in a working state that was dispatched at least once."""

    id: str
    state: str
    locked: bool
    """A worker has it."""
    tries: int = 0
    retry_at: datetime | None = None
    """When it is dispatched again; None unless it was handed back with a delay."""
    message: str = ""
    handed_back: bool = False
    """A worker released it, to wait for `waits_for`; in provisioning without that: for working storage."""
    waits_for: WaitsFor | None = None


def active_jobs(session: Session, counts: dict[JobState, int]) -> Iterator[Active]:
    """At most SAMPLE of each state in which workers act; `counts`: jobs by state."""
    for state in JOB.working():
        if not counts[state] or (state is JobState.PENDING and counts[state] > BACKLOG):
            continue
        jids = queue.queued(session, state)[:SAMPLE]
        for jid, status, locked, mtime in read_statuses(session, jids, JOBS, ignore_damage):
            if status.status is state and (state is not JobState.PENDING or status.dispatched_at or locked):
                yield _active(jid, status, locked, mtime)


def active_batches(session: Session) -> Iterator[Active]:
    """At most SAMPLE of the batches that a worker splits or reports, or should."""
    bids = ownership.children(session, paths.OPEN_BATCHES)[:SAMPLE]
    for bid, status, locked, mtime in read_statuses(session, bids, BATCHES, ignore_damage):
        if status.status in BATCH.working() and status.total is None:
            yield _active(bid, status, locked, mtime)


def _active(name: str, status: JobStatus | BatchStatus, locked: bool, mtime: int) -> Active:
    written = datetime.fromtimestamp(mtime / 1000, UTC)
    waits_for = None if locked else status.waits_for
    return Active(
        id=name,
        state=status.status,
        locked=locked,
        tries=status.tries,
        retry_at=written + timedelta(seconds=status.delay) if waits_for else None,
        message=status.message if waits_for else "",
        handed_back=status.handed_back,
        waits_for=waits_for,
    )
