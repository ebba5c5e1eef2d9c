"""A job or a batch whose znodes cannot be read gets readable ones, and the unreadable bytes are kept aside.

Rule: nothing is guessed. A node that can be read stays as it is; one that cannot is absent, or has the values
that a record cannot do without. All is one transaction, fenced by the version of the status node, and its
history entry keeps the unreadable bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pipeline.errors import UsageRefused
from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.records import (
    Batch,
    BatchHistoryEntry,
    BatchStatus,
    DamagedNode,
    FencedStatus,
    HistoryEntry,
    Identifiers,
    Job,
    JobConfiguration,
    JobStatus,
    PayloadType,
    Record,
    StatusReport,
    Submission,
    SubmissionType,
)
from pipeline.states import BATCH, JOB, BatchState, Bucket, Event, FailureKind, JobState, bucket
from zkstate import codec, paths
from zkstate.connection import ownership
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Put, token
from zkstate.errors import Corrupt, Missing, RecordOfMerritt
from zkstate.record import batches, record, space
from zkstate.record.journal import Stamp
from zkstate.record.node import uncontended

PRIORITIES = range(100)

UNREADABLE = "(not readable)"
"""Stands for a text that is not known and that a record cannot do without."""

INCOMPLETE = (
    "the record of this batch was damaged: it has {} jobs, and objects without a job may be missing; compare "
    "the report with what was submitted"
)

T = TypeVar("T", bound=Record | int)
S = TypeVar("S", bound=FencedStatus)


@dataclass
class _Nodes:
    """The nodes of one record as they were read, and what replaces those that cannot be read."""

    data: dict[str, bytes | None]
    damaged: list[DamagedNode] = field(default_factory=list)
    puts: list[Operation] = field(default_factory=list)

    def read(self, kind: Any, path: str) -> Any | None:
        """The content; None if it cannot be read."""
        data = self.data[path]
        try:
            if data is None:
                return None
            return codec.decode_int(data, path) if kind is int else codec.decode(kind, data, path)
        except RecordOfMerritt:
            raise
        except Corrupt:
            return None

    def read_or(self, path: str, instead: T) -> T:
        """The content, or else `instead`, which is written."""
        content: T | None = self.read(type(instead), path)
        if content is not None:
            return content
        self.replace(path, codec.encode_int(instead) if isinstance(instead, int) else codec.encode(instead))
        return instead

    def replace(self, path: str, content: bytes) -> None:
        self.note(path)
        self.puts.append(self.put(path, content))

    def note(self, path: str) -> None:
        self.damaged.append(DamagedNode.of(path, self.data[path]))

    def put(self, path: str, content: bytes) -> Operation:
        return Create(path, content) if self.data[path] is None else Put(path, content)

    def status(self, kind: type[S], path: str) -> S | None:
        """The status under a new epoch, which voids all messages; None if it cannot be read."""
        status: S | None = self.read(kind, path)
        if status is None:
            self.note(path)
            return None
        return record.next_epoch(status, {"dispatched_at": status.dispatched_at})

    def histories(self, kind: Any, places: Sequence[str], *, required: bool) -> list[tuple[Any, ...]]:
        """The entries of each part, and of the newest one at last, which may be absent unless `required`."""
        *parts, newest = places
        read = [self.read(tuple[kind, ...], path) for path in places]
        for path, entries in zip(parts, read, strict=False):
            if entries is None:
                self.replace(path, codec.encode_history(()))
        if read[-1] is None and (required or self.data[newest] is not None):
            self.note(newest)
        return [entries or () for entries in read]

    def facts(self, stamp: Stamp) -> dict[str, Any]:
        """The details of the history entry that keeps the damaged bytes."""
        named = ", ".join(node.path for node in self.damaged) or "the reservation of working storage"
        because = f": {stamp.reason}" if stamp.reason else ""
        message = f"repaired {named}, which could not be read{because}"
        who = {"by": stamp.by, "via": stamp.via, "request_id": stamp.request_id}
        return {**who, "message": message, "damaged": tuple(self.damaged)}


def _read(
    session: Session, status: str, history: str, places: Sequence[str]
) -> tuple[_Nodes, int, list[str]]:
    """The nodes, the version of the status, and the places of the history's parts, the newest last."""
    session.ensure_node(status)  # a status that is gone is as good as an empty one
    stat = session.exists(status)
    parts = [f"{history}/{name}" for name in sorted(session.children(history))]
    asked = [status, *places, *parts, history]
    read = session.get_many(asked)
    nodes = {path: node and node[0] for path, node in zip(asked, read, strict=True)}
    return _Nodes(nodes), stat.version if stat else 0, [*parts, history]


def _epoch(version: int) -> int:
    """Above every epoch of the record: no write of a status adds more than one to it."""
    return version + 2


def quarantine_job(session: Session, jid: str, working: Path, stamp: Stamp) -> Job:
    """The job with readable nodes, in the state of its queue entry; UsageRefused if every node can be read.

    A job without its status begins again once it is resumed; one without its configuration or identifiers is
    not resumed, because a digest or an ARK may be what is not known. Stale if the job changes meanwhile.
    """
    return uncontended(lambda: _quarantine_job(session, jid, working, stamp))


def _quarantine_job(session: Session, jid: str, working: Path, stamp: Stamp) -> Job:
    if session.exists(paths.job(jid)) is None:
        raise Missing(f"there is no job {jid}")
    own = (paths.job_bid, paths.configuration, paths.identifiers, paths.priority, paths.space_needed)
    newest, status_path = paths.history(jid), paths.job_status(jid)
    nodes, version, places = _read(session, status_path, newest, [path(jid) for path in own])
    queued, queue_entries = _queue_entries(session, jid)
    released = space.release_unreadable(session, jid)
    bid = _batch_of(session, jid, nodes)
    if nodes.data[path := paths.job_bid(jid)] != bid.encode():
        nodes.replace(path, bid.encode())
    read = nodes.status(JobStatus, status_path)
    configuration, identifiers, whole = _values(session, jid, nodes, bid, working / bid / jid)
    histories = nodes.histories(HistoryEntry, places, required=True)
    history = tuple(entry for part in histories for entry in part)
    status = read or _job_status(session, jid, bid, queued, history, _epoch(version))
    if not whole:
        kind = FailureKind.CONTENT if status.status is JobState.FAILED else None
        status = status.model_copy(update={"last_successful_status": None, "kind": kind})
    nodes.read_or(paths.priority(jid), status.priority)
    needed = nodes.read_or(paths.space_needed(jid), space.reservations(session).get(jid, 0))
    if not (nodes.damaged or released):
        raise UsageRefused(f"every znode of {jid} can be read: there is nothing to repair")
    entry = HistoryEntry(state=status.status, table=JOB.version, **nodes.facts(stamp))
    put = nodes.put(newest, codec.encode_history((*histories[-1], entry)))
    job = Job(
        jid=jid,
        bid=bid,
        configuration=configuration,
        identifiers=identifiers,
        status=status,
        version=version,
        priority=status.priority,
        space_needed=needed,
        history=(*history, entry),
        history_parts=tuple(map(len, histories[:-1])),
    )
    moved = (*_requeue(job, queue_entries), *_rebucket(session, job), *record.leave_waiting(session, job))
    return record.write(session, job, status, (*nodes.puts, put, *moved, *released))


def _values(
    session: Session, jid: str, nodes: _Nodes, bid: str, folder: Path
) -> tuple[JobConfiguration, Identifiers, bool]:
    """Configuration and identifiers, and whether they are as they were.

    The directory is derived and never taken from damaged bytes, because it is removed with the job.
    """
    noted = len(nodes.damaged)
    path = paths.configuration(jid)
    configuration: JobConfiguration | None = nodes.read(JobConfiguration, path)
    if configuration is None or configuration.batch_id != bid:
        deposited = _deposited(session, bid)
        configuration = JobConfiguration(batch_id=bid, working_dir=str(folder), **deposited)
        nodes.replace(path, codec.encode(configuration))
    identifiers = nodes.read_or(paths.identifiers(jid), Identifiers())
    return configuration, identifiers, len(nodes.damaged) == noted


def _deposited(session: Session, bid: str) -> dict[str, Any]:
    """What the submission says of the job, if it can be read: of a batch of several, what all jobs have."""
    path = paths.submission(bid)
    node = session.find(path)
    submission = _Nodes({path: node and node[0]}).read(Submission, path)
    content = {"payload_url": UNREADABLE, "payload_type": PayloadType.FILE}
    if submission is None:
        return {**content, "profile_name": UNREADABLE}
    if submission.type.value not in set(PayloadType):
        return {**content, **submission.model_dump(include=_OF_ALL_JOBS)}
    own = {"payload_type": submission.type.value, "payload_name": submission.payload_filename}
    return {**own, **submission.model_dump(include=_OF_ALL_JOBS | _OF_ONE_OBJECT)}


_OF_ONE_OBJECT = {"payload_url", "size", "digest"}
_OF_ALL_JOBS = set(JobConfiguration.model_fields) & set(Submission.model_fields) - _OF_ONE_OBJECT
"""The fields of a submission that its jobs repeat."""


def _job_status(
    session: Session,
    jid: str,
    bid: str,
    queued: tuple[JobState, int] | None,
    history: Sequence[HistoryEntry],
    epoch: int,
) -> JobStatus:
    """Every move changes queue, bucket and history together with the status."""
    if queued is None:
        ended = session.exists(paths.batch_entry(bid, Bucket.COMPLETED, jid)) is not None
        return JobStatus(
            status=JobState.COMPLETED if ended else JobState.FAILED,
            kind=None if ended else FailureKind.SYSTEM,
            epoch=epoch,
            op=token(),
        )
    state, priority = queued
    last = history[-1] if history and history[-1].event is Event.FAIL else None
    failed = state is JobState.FAILED
    return JobStatus(
        status=state,
        priority=priority,
        kind=((last.kind if last else None) or FailureKind.SYSTEM) if failed else None,
        message=last.message if failed and last else "",
        epoch=epoch,
        op=token(),
    )


def _queue_entries(session: Session, jid: str) -> tuple[tuple[JobState, int] | None, list[str]]:
    """The queue that lists the job and its priority there, and all its entries: one round of reads."""
    states = JOB.where(lambda facts: facts.queued)
    places = [(state, pp) for state in states for pp in PRIORITIES]
    names = [paths.queue_entry(state, pp, jid) for state, pp in places]
    present = [
        (place, name)
        for place, name, stat in zip(places, names, session.exists_many(names), strict=True)
        if stat is not None
    ]
    return (present[0][0] if present else None), [name for _, name in present]


def _requeue(job: Job, entries: Sequence[str]) -> list[Operation]:
    """Exactly one entry; a completed job that was cleaned up has none."""
    right = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    if not entries and job.status.status is JobState.COMPLETED:
        return []
    wrong: list[Operation] = [Delete(entry) for entry in entries if entry != right]
    return wrong if right in entries else [*wrong, Create(right)]


def _rebucket(session: Session, job: Job) -> list[Operation]:
    right = bucket(job.status.status)
    stats = session.exists_many([paths.batch_entry(job.bid, name, job.jid) for name in Bucket])
    present = [name for name, stat in zip(Bucket, stats, strict=True) if stat is not None]
    wrong: list[Operation] = [
        Delete(paths.batch_entry(job.bid, name, job.jid)) for name in present if name is not right
    ]
    return wrong if right in present else [*wrong, Create(paths.batch_entry(job.bid, right, job.jid))]


def _batch_of(session: Session, jid: str, nodes: _Nodes) -> str:
    """The batch that lists the job: the named one, else whichever does."""
    named = (nodes.data[paths.job_bid(jid)] or b"").decode("ascii", "replace")
    every = ownership.children(session, paths.BATCHES)
    for bid in ([named] if named in every else []) + every:
        entries = [paths.batch_entry(bid, name, jid) for name in Bucket]
        if any(stat is not None for stat in session.exists_many(entries)):
            return bid
    raise Corrupt(f"no batch lists {jid}, and its own znodes name none that exists: restore the record")


def quarantine_batch(session: Session, bid: str, stamp: Stamp) -> Batch:
    """The batch with readable nodes, in the state in which it was; UsageRefused if every node can be read.

    A report or a profile that cannot be read is removed: the next report is a whole one, and the profile's
    file counts. Stale if the batch changes meanwhile.
    """
    if session.exists(paths.batch(bid)) is None:
        raise Missing(f"there is no batch {bid}")
    history, report, profile = paths.batch_history(bid), paths.status_report(bid), paths.profile_snapshot(bid)
    nodes, version, places = _read(
        session, paths.batch_status(bid), history, [paths.submission(bid), report, profile]
    )
    lost = Submission(payload_url=UNREADABLE, type=SubmissionType.FILE, profile_name=UNREADABLE)
    submission = nodes.read_or(paths.submission(bid), lost)
    read = nodes.status(BatchStatus, paths.batch_status(bid))
    removed: list[Operation] = []
    for path, kind in ((report, StatusReport), (profile, ProfileSnapshot)):
        if nodes.data[path] is not None and nodes.read(kind, path) is None:
            nodes.note(path)
            removed.append(Delete(path))
    histories = nodes.histories(BatchHistoryEntry, places, required=False)
    if not nodes.damaged:
        raise UsageRefused(f"every znode of {bid} can be read: there is nothing to repair")
    entries = tuple(entry for part in histories for entry in part)
    split = session.exists(paths.buckets(bid)) is not None
    is_open = session.exists(paths.open_batch(bid)) is not None
    status = read or _batch_status(
        session, bid, entries, version, split=split, is_open=is_open, reported=nodes.data[report] is not None
    )
    entry = BatchHistoryEntry(state=status.status, table=BATCH.version, **nodes.facts(stamp))
    newest = nodes.put(history, codec.encode_history((*histories[-1], entry)))
    batch = Batch(
        bid=bid,
        submission=submission,
        status=status,
        version=version,
        report=nodes.read(StatusReport, report),
        history=(*entries, entry),
        history_parts=tuple(map(len, histories[:-1])),
    )
    moved = _places(batch, split=split, is_open=is_open)
    return record.write(session, batch, status, (*nodes.puts, newest, *removed, *moved))


def _batch_status(  # noqa: PLR0913 - what other nodes say
    session: Session,
    bid: str,
    history: Sequence[BatchHistoryEntry],
    version: int,
    *,
    split: bool,
    is_open: bool,
    reported: bool,
) -> BatchStatus:
    """A split that had not ended cannot continue without its plan: the batch gets no further jobs."""
    if history:
        state = history[-1].state
    elif split:
        unended = is_open or bool(batches.jobs_in(session, bid, Bucket.PROCESSING))
        state = BatchState.PROCESSING if unended else BatchState.FAILED
    else:
        state = BATCH.initial if is_open else BatchState.HELD
    jobs = len(batches.all_jobs(session, bid))
    return BatchStatus(
        status=state,
        created=jobs,
        total=jobs if split else None,
        kind=FailureKind.SYSTEM if split else None,
        message=INCOMPLETE.format(jobs) if split else "",
        reports=int(reported),
        epoch=_epoch(version),
        op=token(),
    )


def _places(batch: Batch, *, split: bool, is_open: bool) -> list[Operation]:
    """The batch is among the open ones as its state says, and has folders for its jobs once it is split."""
    facts = BATCH.facts[batch.status.status]
    path = paths.open_batch(batch.bid)
    places: list[Operation] = []
    if facts.open != is_open:
        places.append(Create(path) if facts.open else Delete(path))
    if facts.split and not split:
        places.append(Create(paths.buckets(batch.bid)))
        places += [Create(paths.bucket(batch.bid, name)) for name in Bucket]
    return places
