"""Replaces the unreadable znodes of a job or a batch by readable ones, and keeps the unreadable bytes.

Rule: nothing is guessed. A readable node stays as it is; an unreadable one is removed, or gets the values
that a record requires. Everything is one transaction, fenced by the version of the status node, and its
history entry keeps the unreadable bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pipeline.errors import UsageRefused
from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.records import (
    DEFAULT_PRIORITY,
    BatchHistoryEntry,
    BatchStatus,
    DamagedNode,
    FencedStatus,
    HistoryEntry,
    Identifiers,
    JobConfiguration,
    JobStatus,
    PayloadType,
    Record,
    StatusReport,
    Submission,
    SubmissionType,
)
from pipeline.states import (
    BATCH,
    FAILING,
    JOB,
    QUEUED,
    BatchState,
    Bucket,
    FailureKind,
    JobState,
    Machine,
    StateFacts,
    bucket,
)
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Put, fenced, token
from zkstate.errors import Corrupt, Missing, RecordOfMerritt
from zkstate.record import batches, record, space
from zkstate.record.journal import Stamp
from zkstate.record.node import Node, uncontended

PRIORITIES = range(100)

UNREADABLE = "(not readable)"
"""Placeholder for an unknown text that a record requires."""

INCOMPLETE = (
    "the record of this batch was damaged: it has {} jobs, and objects without a job may be missing; compare "
    "the report with what was submitted"
)

T = TypeVar("T", bound=Record | int)
S = TypeVar("S", bound=FencedStatus)


@dataclass
class _Nodes:
    """The nodes of one record as they were read, and the replacements of unreadable ones."""

    status_path: str
    version: int
    """Version of the status node."""
    histories: list[str]
    """The parts of the history, the newest last."""
    data: dict[str, bytes | None]
    damaged: list[DamagedNode] = field(default_factory=list)
    changes: list[Operation] = field(default_factory=list)
    newest: tuple[Any, ...] = ()
    """The entries of the newest part."""

    def read(self, kind: Any, path: str) -> Any | None:
        """The content; None if it cannot be read."""
        data = self.data[path]
        try:
            return None if data is None else codec.decode(kind, data, path)
        except RecordOfMerritt:
            raise
        except Corrupt:
            return None

    def read_or(self, path: str, instead: T) -> T:
        """The content; if it cannot be read, `instead`, which is then written."""
        content: T | None = self.read(type(instead), path)
        if content is not None:
            return content
        self.replace(path, codec.encode(instead))
        return instead

    def replace(self, path: str, content: bytes) -> None:
        self.note(path)
        self.changes.append(self.put(path, content))

    def remove_unreadable(self, kind: Any, path: str) -> None:
        if self.data[path] is not None and self.read(kind, path) is None:
            self.note(path)
            self.changes.append(Delete(path))

    def note(self, path: str) -> None:
        self.damaged.append(DamagedNode.of(path, self.data[path]))

    def put(self, path: str, content: bytes) -> Operation:
        return Create(path, content) if self.data[path] is None else Put(path, content)

    def status(self, kind: type[S]) -> S | None:
        """The status under a new epoch, which voids all messages; None if it cannot be read."""
        status: S | None = self.read(kind, self.status_path)
        if status is None:
            self.note(self.status_path)
            return None
        return record.next_epoch(status, {"dispatched_at": status.dispatched_at})

    def history(self, kind: Any, *, required: bool) -> tuple[Any, ...]:
        """All entries that can be read; the newest part may be absent unless `required`."""
        *parts, newest = self.histories
        read = [self.read(tuple[kind, ...], path) for path in self.histories]
        for path, entries in zip(parts, read, strict=False):
            if entries is None:
                self.replace(path, codec.encode_history(()))
        if read[-1] is None and (required or self.data[newest] is not None):
            self.note(newest)
        self.newest = read[-1] or ()
        return tuple(entry for entries in read for entry in entries or ())

    def write(
        self,
        session: Session,
        status: JobStatus | BatchStatus,
        machine: Machine[Any],
        stamp: Stamp,
        *more: Operation,
    ) -> tuple[DamagedNode, ...]:
        """Commit the replacements, with a history entry that keeps the damaged bytes."""
        named = ", ".join(node.path for node in self.damaged) or "the reservation of working storage"
        because = f": {stamp.reason}" if stamp.reason else ""
        kind = HistoryEntry if machine is JOB else BatchHistoryEntry
        entry = kind.model_validate(
            stamp.model_dump(include={"by", "via", "request_id"})
            | {"state": status.status, "table": machine.version, "damaged": tuple(self.damaged)}
            | {"message": f"repaired {named}, which could not be read{because}"}
        )
        history = self.put(self.histories[-1], codec.encode_history((*self.newest, entry)))
        fenced(
            session,
            Put(self.status_path, codec.encode(status), self.version),
            (*self.changes, history, *more),
            lambda present: status.op.encode() in present,
        )
        return tuple(self.damaged)


def _read(session: Session, status: str, history: str, *others: str) -> _Nodes:
    session.ensure_node(status)  # a missing status is treated like an empty one
    stat = session.exists(status)
    histories = [*(f"{history}/{name}" for name in session.children(history)), history]
    places = [status, *others, *histories]
    nodes = zip(places, session.get_many(places), strict=True)
    return _Nodes(
        status, stat.version if stat else 0, histories, {path: node and node[0] for path, node in nodes}
    )


def _epoch(version: int) -> int:
    """An epoch above all others of the record: each write of the status raises it by at most one."""
    return version + 2


def _refuse_readable(name: str) -> UsageRefused:
    return UsageRefused(f"every znode of {name} can be read: there is nothing to repair")


def quarantine(session: Session, name: str, working: Path, stamp: Stamp) -> tuple[DamagedNode, ...]:
    """Give the job or batch readable nodes without changing its state; returns the unreadable nodes.

    UsageRefused if every node is readable; Stale if the job or batch changes meanwhile.
    """
    if name.startswith("bid"):
        return _quarantine_batch(session, name, stamp)
    return uncontended(lambda: _quarantine_job(session, name, working, stamp))


def _quarantine_job(session: Session, jid: str, working: Path, stamp: Stamp) -> tuple[DamagedNode, ...]:
    """Repair a job; its queue entry gives its state.

    A job that lost its status starts from the beginning when it is resumed; one that lost its configuration
    or identifiers cannot be resumed, because a digest or an ARK may be missing.
    """
    if session.exists(paths.job(jid)) is None:
        raise Missing(f"there is no job {jid}")
    own = (paths.job_bid, paths.configuration, paths.identifiers, paths.priority, paths.space_needed)
    nodes = _read(session, paths.job_status(jid), paths.history(jid), *(path(jid) for path in own))
    queued = _queue_entries(session, jid)
    released = space.release_unreadable(session, jid)
    bid = _batch_of(session, jid, nodes)
    if nodes.data[path := paths.job_bid(jid)] != bid.encode():
        nodes.replace(path, bid.encode())
    read = nodes.status(JobStatus)
    whole = _keep_values(session, jid, nodes, bid, working / bid / jid)
    history = nodes.history(HistoryEntry, required=True)
    status = read or _job_status(session, jid, bid, next(iter(queued.values()), None), history, nodes.version)
    if not whole:
        kind = FailureKind.CONTENT if status.status is JobState.FAILED else None
        status = status.model_copy(update={"last_successful_status": None, "kind": kind})
    nodes.read_or(paths.priority(jid), status.priority)
    nodes.read_or(paths.space_needed(jid), space.reservations(session).get(jid, 0))
    if not (nodes.damaged or released):
        raise _refuse_readable(jid)
    # a completed job that was cleaned up has no entry in a queue
    queue = paths.queue_entry(status.status, status.priority, jid)
    in_queue = _only(queue, list(queued)) if queued or status.status is not JobState.COMPLETED else ()
    entries = [paths.batch_entry(bid, name, jid) for name in Bucket]
    in_batch = _only(paths.batch_entry(bid, bucket(status.status), jid), _present(session, entries))
    waits = [Delete(path) for path in _present(session, [paths.waiting(jid)])]
    return nodes.write(session, status, JOB, stamp, *in_queue, *in_batch, *waits, *released)


def _present(session: Session, places: Sequence[str]) -> list[str]:
    stats = session.exists_many(places)
    return [place for place, stat in zip(places, stats, strict=True) if stat is not None]


def _only(right: str, present: Sequence[str]) -> list[Operation]:
    """Operations after which only `right` exists."""
    wrong: list[Operation] = [Delete(path) for path in present if path != right]
    return wrong if right in present else [*wrong, Create(right)]


def _keep_values(session: Session, jid: str, nodes: _Nodes, bid: str, folder: Path) -> bool:
    """Replace unreadable configuration and identifiers; False if one had to be replaced.

    The directory is derived and never taken from damaged bytes, because it is removed with the job.
    """
    noted = len(nodes.damaged)
    path = paths.configuration(jid)
    configuration: JobConfiguration | None = nodes.read(JobConfiguration, path)
    if configuration is None or configuration.batch_id != bid:
        deposited = _deposited(session, bid)
        configuration = JobConfiguration(batch_id=bid, working_dir=str(folder), **deposited)
        nodes.replace(path, codec.encode(configuration))
    nodes.read_or(paths.identifiers(jid), Identifiers())
    return len(nodes.damaged) == noted


def _deposited(session: Session, bid: str) -> dict[str, Any]:
    """The job's values in the submission, if readable; for a batch of several jobs, only the common ones."""
    content = {"payload_url": UNREADABLE, "payload_type": PayloadType.FILE}
    try:
        submission = Node(paths.submission(bid), Submission).read(session)
    except Corrupt:
        submission = None
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
    version: int,
) -> JobStatus:
    """Derive a status from queue, bucket and history, which every move changes together with the status."""
    if queued is None:
        ended = session.exists(paths.batch_entry(bid, Bucket.COMPLETED, jid)) is not None
        state, priority = JobState.COMPLETED if ended else JobState.FAILED, DEFAULT_PRIORITY
        last = None
    else:
        state, priority = queued
        last = history[-1] if history and history[-1].event in FAILING else None
    failed = state is JobState.FAILED
    return JobStatus(
        status=state,
        priority=priority,
        kind=((last and last.kind) or FailureKind.SYSTEM) if failed else None,
        **(record.with_cause(last.message, last.cause) if failed and last else {}),
        epoch=_epoch(version),
        op=token(),
    )


def _queue_entries(session: Session, jid: str) -> dict[str, tuple[JobState, int]]:
    """The job's queue entries with their state and priority, in one round of reads."""
    places = {paths.queue_entry(state, pp, jid): (state, pp) for state in QUEUED for pp in PRIORITIES}
    return {path: places[path] for path in _present(session, list(places))}


def _batch_of(session: Session, jid: str, nodes: _Nodes) -> str:
    """The batch that lists the job: the one that its node names, or any other."""
    named = (nodes.data[paths.job_bid(jid)] or b"").decode("ascii", "replace")
    every = session.children(paths.BATCHES)
    for bid in ([named] if named in every else []) + every:
        if _present(session, [paths.batch_entry(bid, name, jid) for name in Bucket]):
            return bid
    raise Corrupt(f"no batch lists {jid}, and its own znodes name none that exists: restore the record")


def _quarantine_batch(session: Session, bid: str, stamp: Stamp) -> tuple[DamagedNode, ...]:
    """Repair a batch.

    An unreadable report or profile is removed: the next report is complete, and the profile is read from its
    file.
    """
    if session.exists(paths.batch(bid)) is None:
        raise Missing(f"there is no batch {bid}")
    submission, report, profile = paths.submission(bid), paths.status_report(bid), paths.profile_snapshot(bid)
    nodes = _read(session, paths.batch_status(bid), paths.batch_history(bid), submission, report, profile)
    lost = Submission(payload_url=UNREADABLE, type=SubmissionType.FILE, profile_name=UNREADABLE)
    nodes.read_or(submission, lost)
    read = nodes.status(BatchStatus)
    nodes.remove_unreadable(StatusReport, report)
    nodes.remove_unreadable(ProfileSnapshot, profile)
    history = nodes.history(BatchHistoryEntry, required=False)
    if not nodes.damaged:
        raise _refuse_readable(bid)
    split = session.exists(paths.buckets(bid)) is not None
    is_open = session.exists(paths.open_batch(bid)) is not None
    status = read or _batch_status(session, bid, history, nodes, split=split, is_open=is_open)
    places = _places(bid, BATCH.facts[status.status], split=split, is_open=is_open)
    return nodes.write(session, status, BATCH, stamp, *places)


def _batch_status(
    session: Session,
    bid: str,
    history: Sequence[BatchHistoryEntry],
    nodes: _Nodes,
    *,
    split: bool,
    is_open: bool,
) -> BatchStatus:
    """Derive a status. An unfinished split cannot continue without its plan: the batch gets no more jobs."""
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
        reports=int(nodes.data[paths.status_report(bid)] is not None),
        epoch=_epoch(nodes.version),
        op=token(),
    )


def _places(bid: str, facts: StateFacts, *, split: bool, is_open: bool) -> list[Operation]:
    """Operations that make open-batch entry and buckets agree with the state of the batch."""
    path = paths.open_batch(bid)
    places: list[Operation] = []
    if facts.open != is_open:
        places.append(Create(path) if facts.open else Delete(path))
    if facts.split and not split:
        places.append(Create(paths.buckets(bid)))
        places += [Create(paths.bucket(bid, name)) for name in Bucket]
    return places
