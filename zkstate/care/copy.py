"""A logical copy of the record: read while the fleet works, and written into an empty record.

Rule: the entries of queues, batches and reservations are not copied; they are derived from the copied nodes.
A batch is read together with the ids of its jobs, a job's nodes between two equal versions of its status;
counters are read last, so that no copied job has a number above them.

Rule: the job counter and the deployment id are written last, in one transaction. Until then the record has
no job number, and no process works on such a record if the other stores have objects. An interrupted restore
is repeated from the beginning.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from kazoo.exceptions import NoNodeError, NotEmptyError

from pipeline.backup_files import NodeCopy, RecordEntry
from pipeline.deployment import Deployment
from pipeline.errors import UsageRefused
from pipeline.records import DEFAULT_PRIORITY, BatchHistoryEntry, BatchStatus, HistoryEntry, JobStatus
from pipeline.states import BATCH, JOB, BatchState, Bucket, Event, JobState, Room, bucket
from zkstate import codec, paths
from zkstate.connection import locks
from zkstate.connection.session import Session
from zkstate.connection.transaction import TRANSACTION_LIMIT, Create, Operation, Put, commit, size_of, token
from zkstate.errors import Busy, Corrupt, Missing
from zkstate.fleet import counters
from zkstate.record import batches
from zkstate.record.node import Parts, read_parts

T = TypeVar("T")

PAGE = 100
"""Jobs whose nodes are requested at once: some 700 answers of a few kilobytes."""

TRIES = 100
"""Maximum reads of a batch or a job that changes while it is read."""

ALIKE = 10
"""Equal reads in a row, after which a number of jobs that contradicts the status is damage, and no change in
progress."""

BATCH_NODES = ("submission", "profile", "status", "history", "status-report")
JOB_NODES = ("bid", "configuration", "identifiers", "status", "priority", "space_needed", "history")
_JOB_PATHS = tuple(f"{paths.JOBS}/{{}}/{name}".format for name in JOB_NODES)
_WITH_CHILDREN = ("history", "report-parts")


def read_record(session: Session) -> Iterator[RecordEntry]:
    """Every batch with its jobs, and the single nodes; Busy if a batch changes during every read."""
    yield from _singles(session, "/submission-keys")
    for bid in session.children(paths.BATCHES):
        yield from _batch(session, bid)
    for folder in (paths.HOLDS, paths.DRAINS, "/locks/queue", paths.CALLBACKS, "/actions/collections"):
        yield from _singles(session, folder)
    for folder in (paths.SUBSCRIPTIONS, paths.DELIVERIES):  # without the events that wait
        yield from _singles(session, folder)
    yield from _nodes(session, ["/actions/queue"])
    yield from _singles(session, "/ids")


def _singles(session: Session, folder: str) -> Iterator[RecordEntry]:
    names = session.children(folder)
    for start in range(0, len(names), PAGE):
        yield from _nodes(session, [f"{folder}/{name}" for name in names[start : start + PAGE]])


def _nodes(session: Session, places: Sequence[str]) -> Iterator[RecordEntry]:
    for place, node in zip(places, session.get_many(places), strict=True):
        if node is not None:
            yield RecordEntry(path=place, version=node[1].version, nodes=(NodeCopy(data=node[0]),))


def _batch(session: Session, bid: str) -> Iterator[RecordEntry]:
    read = _batch_with_jobs(session, bid)
    if read is None:
        return
    entry, present, deleted = read
    yield entry
    for jid in deleted:
        yield RecordEntry(batch=bid, job=jid)
    lost = False
    for start in range(0, len(present), PAGE):
        for job in _jobs(session, bid, present[start : start + PAGE]):
            lost = lost or not job.nodes
            yield job
    if lost and _is_gone(session, bid):
        yield RecordEntry(batch=bid, removed=True)


def _is_gone(session: Session, bid: str) -> bool:
    node = session.find(paths.batch_status(bid))
    if node is None:
        return True
    status = _readable(BatchStatus, node[0])
    return status is not None and status.status is BatchState.DELETED


def _readable(kind: type[T], data: bytes | None) -> T | None:
    """The content; None of a node that is missing or damaged, which is copied as it is."""
    try:
        return None if data is None else codec.decode(kind, data, "")
    except Corrupt:
        return None


def _batch_with_jobs(session: Session, bid: str) -> tuple[RecordEntry, list[str], list[str]] | None:
    """The batch, the ids of its jobs, and those of its deleted jobs; None if the batch is gone."""
    path, alike, last = paths.batch(bid), 0, (0, frozenset[str]())
    for _ in range(TRIES):
        before = session.find(paths.batch_status(bid))
        if before is None:
            return None
        status = _readable(BatchStatus, before[0])
        answers = session.get_many([f"{path}/{name}" for name in BATCH_NODES])
        nodes = [*_copies(session, path, BATCH_NODES, answers), *_children(session, path, "report-parts")]
        # unended jobs first and last: a job that ends, or is resumed, is in one of the listings
        unended = set(batches.jobs_in(session, bid, Bucket.PROCESSING))
        ended = {name: set(batches.jobs_in(session, bid, name)) for name in Bucket}
        deleted = ended[Bucket.DELETED]
        every = unended.union(*ended.values())
        after = session.exists(paths.batch_status(bid))
        unchanged = after is not None and after.mzxid == before[1].mzxid
        is_whole = status is None or len(every) == status.created or status.status is BatchState.DELETED
        listed = before[1].mzxid, frozenset(every)
        alike, last = alike + 1 if unchanged and listed == last else 0, listed
        if alike == ALIKE:  # it contradicts itself, as the audit says
            every |= _naming(session, bid, every)
        if unchanged and (is_whole or alike == ALIKE):
            return RecordEntry(batch=bid, nodes=tuple(nodes)), sorted(every - deleted), sorted(deleted)
    raise Busy(f"{bid} kept changing while it was read; try again")


def _naming(session: Session, bid: str, listed: set[str]) -> set[str]:
    """The jobs that name the batch, although it does not list them."""
    others = sorted({*session.children(paths.JOBS)} - listed)
    return {
        jid
        for jid, (named,) in read_parts(session, others, (paths.job_bid,), PAGE)
        if named is not None and named[0] == bid.encode()
    }


def _jobs(session: Session, bid: str, jids: Sequence[str]) -> Iterator[RecordEntry]:
    """The jobs of a page; a job that was deleted meanwhile has no nodes."""
    left = list(jids)
    for _ in range(TRIES):
        before = session.exists_many([paths.job_status(jid) for jid in left])
        # lists: a lazy read would happen after the second check of the status
        read = [
            list(_copies(session, paths.job(jid), JOB_NODES, answers))
            for jid, answers in read_parts(session, left, _JOB_PATHS, PAGE)
        ]
        after = session.exists_many([paths.job_status(jid) for jid in left])
        changed = []
        for jid, nodes, first, last in zip(left, read, before, after, strict=True):
            if first is None and last is None:  # deleted, or without its status
                yield RecordEntry(batch=bid, job=jid, nodes=tuple(nodes))
            elif last is None:
                yield RecordEntry(batch=bid, job=jid)
            elif first is not None and first.mzxid == last.mzxid:
                yield RecordEntry(batch=bid, job=jid, nodes=tuple(nodes))
            else:
                changed.append(jid)
        left = changed
        if not left:
            return
    raise Busy(f"{left[0]} kept changing while it was read; try again")


def _copies(session: Session, path: str, names: Sequence[str], answers: Parts) -> Iterator[NodeCopy]:
    """The nodes of a batch or a job that exist, with the parts of long ones."""
    for name, node in zip(names, answers, strict=True):
        if node is not None:
            yield NodeCopy(name=name, data=node[0])
            if name in _WITH_CHILDREN and node[1].numChildren:
                yield from _children(session, path, name)


def _children(session: Session, path: str, folder: str) -> list[NodeCopy]:
    names = [f"{folder}/{name}" for name in session.children(f"{path}/{folder}")]
    if not names:
        return []
    copies = []
    for name, node in zip(names, session.get_many([f"{path}/{name}" for name in names]), strict=True):
        if node is None:
            raise Missing(f"znode {path}/{name} is missing")
        copies.append(NodeCopy(name=name, data=node[0]))
    return copies


_OPERATIONS = 400
"""Maximum operations of one transaction: as many as it takes to create 40 jobs."""


class _Writer:
    """Creates nodes in transactions of a bounded size."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._operations: list[Operation] = []
        self._bytes = 0

    def add(self, operation: Create) -> None:
        size = size_of(self._session, (operation,))
        if self._bytes + size > TRANSACTION_LIMIT // 2 or len(self._operations) >= _OPERATIONS:
            self.flush()
        if size > TRANSACTION_LIMIT // 2:
            # a list that an earlier release kept in one node
            self._session.ensure_node(operation.path, operation.data)
            return
        self._operations.append(operation)
        self._bytes += size

    def flush(self) -> None:
        if self._operations:
            commit(self._session, self._operations)
        self._operations, self._bytes = [], 0


@contextmanager
def alone(session: Session) -> Iterator[None]:
    """Keep other restores from this record; UsageRefused if one is running."""
    mark = token()
    if not locks.take(session, paths.RESTORE, mark):
        raise UsageRefused(
            f"another restore works on the record {session.hosts}{session.root}: wait until it has ended; "
            f"if it was killed, for the {session.timeout:.0f} seconds of its session"
        )
    try:
        yield
    finally:
        locks.drop(session, paths.RESTORE, mark)


def is_empty(session: Session) -> bool:
    """True if the record has no batch, no job, no number and no deployment id."""
    numbers = [stat for stat in session.exists_many([paths.DEPLOYMENT, paths.counter("job")]) if stat]
    return not (numbers or session.children(paths.JOBS) or session.children(paths.BATCHES))


def clear(session: Session) -> None:
    """Delete every node of the record, the deployment id first, so that no process works on the rest.

    Nodes of other applications stay, and so do the folders that have some.
    """
    for path in (paths.DEPLOYMENT, *paths.TOP):
        for name in session.children(path):
            with suppress(NoNodeError):
                session.zk.delete(f"{path}/{name}", recursive=True)
        with suppress(NoNodeError, NotEmptyError):
            session.zk.delete(path)
    for path in paths.SKELETON:
        session.ensure_node(path)


def write_record(
    session: Session, entries: Iterable[RecordEntry], removed: frozenset[str], deployment: Deployment
) -> None:
    """Write the entries into an empty record. `removed`: batches whose entries are skipped."""
    writer = _Writer(session)
    reserved = 0
    batches: set[str] = set()
    jobs: set[str] = set()
    numbers: dict[str, RecordEntry] = {}
    keys: list[RecordEntry] = []
    for entry in entries:
        if entry.batch in removed or entry.job in jobs:  # one that two batches list
            continue
        if entry.job:
            reserved += _write_job(writer, entry)
            jobs.update([entry.job] if entry.nodes else [])
        elif entry.batch:
            _write_batch(writer, entry)
            batches.add(entry.batch)
        elif entry.path.startswith("/ids/"):
            numbers[entry.path] = entry
        elif entry.path.startswith("/submission-keys/"):
            keys.append(entry)
        elif _is_owned(entry, jobs):
            _write_single(session, writer, entry)
    for entry in keys:
        if entry.data[""].decode(errors="replace") in batches:
            _write_single(session, writer, entry)
    writer.flush()
    commit(session, [Put(paths.SPACE, codec.encode_int(reserved))])
    _finish(session, numbers, deployment)


def _is_owned(entry: RecordEntry, jobs: set[str]) -> bool:
    """False for the callback of a job that is not restored."""
    folder, _, name = entry.path.rpartition("/")
    return folder != paths.CALLBACKS or paths.read_owed_callback(name)[0] in jobs


def _write_single(session: Session, writer: _Writer, entry: RecordEntry) -> None:
    parent = entry.path.rpartition("/")[0]
    session.ensure_node(parent)
    writer.add(Create(entry.path, entry.data[""]))


def _tree(path: str, entry: RecordEntry) -> Iterator[Create]:
    """The nodes of an entry, parents before children; a folder that was not copied is created empty."""
    yield Create(path)
    nodes = entry.data
    folders = {name.partition("/")[0] for name in nodes if "/" in name}
    for name in sorted({*nodes, *folders}):
        yield Create(f"{path}/{name}", nodes.get(name, b""))


def _write_batch(writer: _Writer, entry: RecordEntry) -> None:
    bid = entry.batch
    for create in _tree(paths.batch(bid), entry):
        writer.add(create)
    facts = BATCH.facts[_batch_state(entry)]
    if facts.split:
        writer.add(Create(paths.buckets(bid)))
        for name in Bucket:
            writer.add(Create(paths.bucket(bid, name)))
    if facts.open:
        writer.add(Create(paths.open_batch(bid)))


def _batch_state(entry: RecordEntry) -> BatchState:
    """If the status is damaged, that of the history, and without both as if jobs were at work."""
    status = _readable(BatchStatus, entry.data.get("status"))
    if status is not None:
        return status.status
    history = _readable(tuple[BatchHistoryEntry, ...], entry.data.get("history"))
    return history[-1].state if history else BatchState.PROCESSING


def _write_job(writer: _Writer, entry: RecordEntry) -> int:
    """Write a job with its entries; returns the bytes of working storage that are reserved for it."""
    jid = entry.job
    if not entry.nodes:
        writer.add(Create(paths.batch_entry(entry.batch, Bucket.DELETED, jid)))
        return 0
    for create in _tree(paths.job(jid), entry):
        writer.add(create)
    status = _job_status(entry)
    writer.add(Create(paths.batch_entry(entry.batch, bucket(status.status), jid)))
    # a completed job is cleaned up again, which is harmless
    writer.add(Create(paths.queue_entry(status.status, status.priority, jid)))
    if status.waits_for and status.waits_for.listed:
        writer.add(Create(paths.waiting(jid)))
    reserved = _readable(int, entry.data.get("space_needed"))
    if reserved is None or not _holds_space(status, entry):
        return 0
    writer.add(Create(paths.reservation(jid), codec.encode_int(reserved)))
    return reserved


def _job_status(entry: RecordEntry) -> JobStatus:
    """If it is damaged, the place of the job is that of its history, and without both that of a failure."""
    status = _readable(JobStatus, entry.data.get("status"))
    if status is not None:
        return status
    history = _readable(tuple[HistoryEntry, ...], entry.data.get("history"))
    priority = _readable(int, entry.data.get("priority"))
    return JobStatus(
        status=history[-1].state if history else JobState.FAILED,
        priority=priority if priority in range(100) else DEFAULT_PRIORITY,
    )


def _holds_space(status: JobStatus, entry: RecordEntry) -> bool:
    """Whether the job had a reservation: in a working state, or after a failure that kept the reservation.

    If a part of its history is damaged, it may have had one.
    """
    if status.status is not JobState.FAILED:
        return JOB.facts[status.status].holds_space
    lists = [data for name, data in entry.data.items() if name.split("/")[0] == "history"]
    parts = [_readable(tuple[HistoryEntry, ...], data) for data in lists]
    provisioned = any(
        part is None
        or any(past.event is Event.SUCCEED and past.state is JobState.DOWNLOADING for past in part)
        for part in parts
    )
    return status.room is Room.KEPT and provisioned


def _finish(session: Session, copied: dict[str, RecordEntry], deployment: Deployment) -> None:
    batch, job = paths.counter("batch"), paths.counter("job")
    for path, entry in copied.items():
        if path not in (batch, job):
            session.ensure_node(path, entry.data[""])
    counters.raise_batches(session, copied[batch].version if batch in copied else 0)
    last = copied[job].data[""] if job in copied else codec.encode_int(0)
    commit(session, [Create(job, last), Create(paths.DEPLOYMENT, codec.encode(deployment))])
