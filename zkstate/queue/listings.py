"""Lists of jobs and batches: their ids, rows for people, outcomes for reports, and a sample of active ones.

Rule: the folders of the queue and of the batches say which jobs are in which state, so a list or a count
by state costs one listing for each folder. A listing of 100,000 names is some 2 MB and takes kazoo about
0.3 s; ZooKeeper's `jute.maxbuffer` limits requests, not the answers to a client.

Rule: an unreadable node does not spoil a list; its id and its fault are listed with the rows.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TypeVar

from kazoo.protocol.states import ZnodeStat

from pipeline.causes import FailureCause
from pipeline.notify.batch_report import JobOutcome
from pipeline.outcome import WaitsFor
from pipeline.records import (
    Batch,
    BatchStatus,
    HistoryEntry,
    Job,
    JobStatus,
    Record,
    Submission,
)
from pipeline.states import BATCH, JOB, QUEUED, BatchState, Bucket, FailureKind, JobState, Room
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt
from zkstate.queue import queue
from zkstate.record import batches, histories, jobs
from zkstate.record.node import ignore_damage, read_parts
from zkstate.record.record import BATCHES, JOBS, lock_path, read_statuses, status_path


def all_jobs(session: Session) -> list[str]:
    """The ids of all jobs, oldest first."""
    return session.children(paths.JOBS)


def all_batches(session: Session) -> list[str]:
    """The ids of all batches, oldest first."""
    return session.children(paths.BATCHES)


def open_batches(session: Session) -> list[str]:
    """The ids of the batches with work left, oldest first."""
    return session.children(paths.OPEN_BATCHES)


def job_exists(session: Session, jid: str) -> bool:
    return session.exists(paths.job(jid)) is not None


def recorded(session: Session) -> int:
    """The number of jobs in the record, ended ones included."""
    (children,) = session.count_children(paths.JOBS)
    return max(0, children - 1)  # the queue is the other child


def completed_jobs(session: Session) -> list[str]:
    """The ids of all completed jobs, oldest first: they leave the queue when they are cleaned up."""
    jids = set(all_jobs(session))
    for state in QUEUED:
        if state is not JobState.COMPLETED:
            jids.difference_update(queue.queued(session, state))
    return sorted(jids)


def recorded_jobs(session: Session) -> list[str]:
    """The ids of the jobs whose version is in the inventory: in a step after recording, or completed."""
    later = (queue.queued(session, state) for state in JOB.working() if JOB.facts[state].recorded)
    return sorted({*completed_jobs(session), *chain.from_iterable(later)})


def failed_jobs(session: Session) -> list[str]:
    """The ids of all failed jobs, oldest first."""
    return sorted(queue.queued(session, JobState.FAILED))


def of_batch(session: Session, bid: str, state: JobState | None = None) -> list[str]:
    """The ids of a batch's jobs, or of those in `state`, in their order."""
    if state is None:
        present = [bucket for bucket in Bucket if bucket is not Bucket.DELETED]
        return batches.jobs_in(session, bid, *present)
    jids = batches.jobs_in(session, bid, JOB.facts[state].bucket)
    if JOB.facts[state].ended:
        return jids
    in_state = set(queue.queued(session, state))
    return [jid for jid in jids if jid in in_state]


def load_batch(session: Session, bid: str) -> Iterator[Job]:
    """The jobs of a batch that are not deleted, a page at a time; Missing or Corrupt if one cannot be read.

    A batch may have more jobs than a worker is meant to hold in memory.
    """
    return jobs.load_many(session, of_batch(session, bid))


def states_of_batch(session: Session, bid: str, counts: dict[Bucket, int]) -> dict[JobState, int]:
    """How many jobs of a batch are in each state; `counts`: how many are in each of its buckets.

    The fullest queue is not listed: jobs that are in no other queue count as being in this one.
    """
    numbers = Counter(
        {state: counts[JOB.facts[state].bucket] for state in JOB.where(lambda facts: facts.ended)}
    )
    queued = queue.counts(session)
    fullest, *others = sorted(
        JOB.where(lambda facts: not facts.ended), key=lambda state: queued[state], reverse=True
    )
    rest = counts[Bucket.PROCESSING]
    if rest and any(queued[state] for state in others):
        unended = set(session.children(paths.bucket(bid, Bucket.PROCESSING)))
        for state in others:
            numbers[state] = len(unended.intersection(queue.queued(session, state))) if queued[state] else 0
            rest -= numbers[state]
    numbers[fullest] = max(rest, 0)
    return {state: numbers[state] for state in JobState if numbers[state]}


def outcomes_of_batch(session: Session, bid: str) -> Iterator[JobOutcome]:
    """The jobs that are not deleted, a page at a time; Missing or Corrupt if one cannot be read."""
    for jid, answers in read_parts(session, of_batch(session, bid), jobs.DESCRIPTION, jobs.LOAD_PAGE):
        status, configuration, identifiers = jobs.describe(
            jid, jobs.require_complete(jid, jobs.DESCRIPTION, answers)
        )
        yield JobOutcome(
            jid=jid,
            configuration=configuration,
            identifiers=identifiers,
            status=status,
            history=_history(session, jid) if status.status is JobState.FAILED else (),
        )


def _history(session: Session, jid: str) -> tuple[HistoryEntry, ...]:
    path = paths.history(jid)
    return histories.read(session, path, session.get(path), HistoryEntry)[0]


READ_PAGE = 200
"""Maximum jobs read at a time, three nodes each: the requests are some 60 kB."""


class JobRow(Record):
    """One line of a list of jobs."""

    jid: str
    bid: str
    profile: str
    deposit_name: str | None = None
    name: str
    state: JobState
    since: datetime
    priority: int
    kind: FailureKind | None = None
    message: str = ""
    failure_cause: FailureCause | None = None
    last_successful_status: JobState | None = None
    ark: str = ""
    local_id: tuple[str, ...] = ()
    retry_count: int = 0
    room: Room | None = None
    """None: not known, as in a list over the API."""


class BatchRow(Record):
    """One line of a list of batches."""

    bid: str
    profile: str
    name: str
    status: BatchState
    since: datetime
    total: int | None = None
    message: str = ""


@dataclass(frozen=True)
class KeptBatch:
    """A batch for who decides what leaves the record; seconds since the epoch, by the server's clock."""

    bid: str
    submission: Submission
    status: BatchStatus
    created: float
    written: float
    """When the status was written last."""


class Unreadable(Record):
    """A job or a batch whose record is damaged or incomplete."""

    id: str
    problem: str


class Holder(Record):
    """The holder of a job's or batch's lock; `since` in seconds since the epoch, by the server's clock."""

    name: str
    since: float


class Activity(Record):
    """The worker of a job or a batch, and when its status was last written, in seconds since the epoch."""

    holder: Holder | None = None
    status_written: float | None = None


Row = TypeVar("Row", JobRow, BatchRow, KeptBatch)


def activity(session: Session, record: Job | Batch) -> Activity:
    lock, status = session.get_many([lock_path(record), status_path(record)])
    holder = None
    if lock is not None:
        # a lock holds the token of the attempt and then the worker's name
        name = lock[0].decode(errors="replace").partition(" ")[2]
        # a process that continues with its job keeps the lock of the first state
        moved = record.status.last_modification_date.timestamp() if isinstance(record, Job) else 0
        since = max(lock[1].ctime / 1000, moved)
        holder = Holder(name=name or "an unnamed worker", since=since)
    return Activity(holder=holder, status_written=status[1].mtime / 1000 if status else None)


def job_rows(session: Session, jids: Sequence[str], page: int = READ_PAGE) -> Iterator[JobRow | Unreadable]:
    """Rows of these jobs, in the given order; skips jobs that were removed meanwhile.

    The jobs are read lazily, `page` at a time.
    """
    return _rows(session, jids, jobs.DESCRIPTION, _job_row, min(page, READ_PAGE))


def batch_rows(session: Session, bids: Sequence[str]) -> Iterator[BatchRow | Unreadable]:
    """Rows of these batches, in the given order; skips batches that were removed meanwhile."""
    return _rows(session, bids, (paths.submission, paths.batch_status), _batch_row, READ_PAGE)


def kept_batches(session: Session, bids: Sequence[str]) -> Iterator[KeptBatch | Unreadable]:
    """Like `batch_rows`: READ_PAGE of them are read at a time, once the one before is used up."""
    return _rows(session, bids, (paths.submission, paths.batch_status), _kept_batch, READ_PAGE)


def readable(rows: Iterator[Row | Unreadable]) -> Iterator[Row]:
    return (row for row in rows if not isinstance(row, Unreadable))


def _rows(
    session: Session,
    names: Sequence[str],
    parts: Sequence[Callable[[str], str]],
    build: Callable[[str, list[tuple[bytes, ZnodeStat]]], Row],
    size: int,
) -> Iterator[Row | Unreadable]:
    for name, answers in read_parts(session, names, parts, size):
        nodes = [node for node in answers if node is not None]
        if not nodes:
            continue
        if len(nodes) < len(parts):
            lacking = parts[answers.index(None)](name)
            yield Unreadable(id=name, problem=f"{name} is incomplete: znode {lacking} is missing")
            continue
        try:
            yield build(name, nodes)
        except Corrupt as damage:
            yield Unreadable(id=name, problem=str(damage))


def _job_row(jid: str, nodes: list[tuple[bytes, ZnodeStat]]) -> JobRow:
    status, configuration, identifiers = jobs.describe(jid, nodes)
    return JobRow(
        jid=jid,
        bid=configuration.batch_id,
        profile=configuration.profile_name,
        deposit_name=configuration.deposit_name,
        name=configuration.name,
        state=status.status,
        since=status.last_modification_date,
        priority=status.priority,
        kind=status.kind,
        message=status.message,
        failure_cause=status.failure_cause,
        last_successful_status=status.last_successful_status,
        ark=identifiers.primary_id or "",
        local_id=identifiers.local_id,
        retry_count=status.retry_count,
        room=status.room,
    )


def _batch_row(bid: str, nodes: list[tuple[bytes, ZnodeStat]]) -> BatchRow:
    batch = _kept_batch(bid, nodes)
    return BatchRow(
        bid=bid,
        profile=batch.submission.profile_name,
        name=batch.submission.name,
        status=batch.status.status,
        since=batch.status.last_modified,
        total=batch.status.total,
        message=batch.status.message,
    )


def _kept_batch(bid: str, nodes: list[tuple[bytes, ZnodeStat]]) -> KeptBatch:
    submission = codec.decode(Submission, nodes[0][0], paths.submission(bid))
    status, stat = codec.decode(BatchStatus, nodes[1][0], paths.batch_status(bid)), nodes[1][1]
    return KeptBatch(bid, submission, status, created=stat.ctime / 1000, written=stat.mtime / 1000)


SAMPLE = 200
"""Maximum jobs per state, and batches, to read; more are active only if ARKLINE_IN_FLIGHT is larger."""

BACKLOG = 5_000
"""Maximum pending jobs for which the queue is listed to find those that were dispatched already."""


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
    """At most SAMPLE jobs of each working state; `counts`: jobs by state."""
    for state in JOB.working():
        if not counts[state] or (state is JobState.PENDING and counts[state] > BACKLOG):
            continue
        jids = queue.queued(session, state)[:SAMPLE]
        for jid, status, locked, mtime in read_statuses(session, jids, JOBS, ignore_damage):
            if status.status is state and (state is not JobState.PENDING or status.dispatched_at or locked):
                yield _active(jid, status, locked, mtime)


def active_batches(session: Session) -> Iterator[Active]:
    """At most SAMPLE of the batches that a worker is splitting or reporting, or should be."""
    bids = open_batches(session)[:SAMPLE]
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
