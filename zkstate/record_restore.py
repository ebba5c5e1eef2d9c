"""Writes the copy of a record into an empty one, and derives the nodes that the copy does not have.

Rule: the job counter and the deployment id are written last, in one transaction. Until then the record has
no job number, and no process works on a record without numbers beside stores with objects. An interrupted
restore is repeated from the beginning.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pipeline.backup_files import RecordEntry
from pipeline.deployment import Deployment
from pipeline.errors import UsageRefused
from pipeline.records import BatchStatus, HistoryEntry, JobStatus
from pipeline.states import BATCH, JOB, Bucket, Event, JobState, Room, bucket
from zkstate import codec, counters, locks, ownership, paths
from zkstate.ownership import delete_record
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import TRANSACTION_LIMIT, Create, Operation, Put, commit, size_of

_OPERATIONS = 400
"""Operations of one transaction, as many as the creation of 40 jobs has."""


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
    """Let no other restore work on this record; UsageRefused if one does."""
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
    jobs = [name for name in ownership.children(session, paths.JOBS) if paths.is_job(name)]
    return not (numbers or jobs or ownership.children(session, paths.BATCHES))


def clear(session: Session) -> None:
    """Delete every node of the record; nodes of other applications stay."""
    delete_record(session)
    for path in paths.SKELETON:
        session.ensure_node(path)


def write_record(
    session: Session, entries: Iterable[RecordEntry], removed: frozenset[str], deployment: Deployment
) -> None:
    """Write the entries into an empty record. `removed`: batches whose entries do not count."""
    writer = _Writer(session)
    reserved = 0
    batches: set[str] = set()
    jobs: set[str] = set()
    numbers: dict[str, RecordEntry] = {}
    keys: list[RecordEntry] = []
    for entry in entries:
        if entry.batch in removed:
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
        if entry.data[""].decode() in batches:
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
    """The nodes of an entry, parents before children; a folder that has no node of its own is empty."""
    yield Create(path)
    nodes = entry.data
    folders = {name.partition("/")[0] for name in nodes if "/" in name}
    for name in sorted({*nodes, *folders}):
        yield Create(f"{path}/{name}", nodes.get(name, b""))


def _write_batch(writer: _Writer, entry: RecordEntry) -> None:
    bid = entry.batch
    for create in _tree(paths.batch(bid), entry):
        writer.add(create)
    status = codec.decode(BatchStatus, entry.data["status"], paths.batch_status(bid))
    facts = BATCH.facts[status.status]
    if facts.split:
        writer.add(Create(paths.buckets(bid)))
        for name in Bucket:
            writer.add(Create(paths.bucket(bid, name)))
    if facts.open:
        writer.add(Create(paths.open_batch(bid)))


def _write_job(writer: _Writer, entry: RecordEntry) -> int:
    """Write a job with its places; the bytes of working storage that are reserved for the job."""
    jid = entry.job
    if not entry.nodes:
        writer.add(Create(paths.batch_entry(entry.batch, Bucket.DELETED, jid)))
        return 0
    for create in _tree(paths.job(jid), entry):
        writer.add(create)
    status = codec.decode(JobStatus, entry.data["status"], paths.job_status(jid))
    writer.add(Create(paths.batch_entry(entry.batch, bucket(status.status), jid)))
    # a completed job is cleaned up again, which is harmless
    writer.add(Create(paths.queue_entry(status.status, status.priority, jid)))
    if status.waits_for and status.waits_for.listed:
        writer.add(Create(paths.waiting(jid)))
    reserved = codec.decode_int(entry.data["space_needed"], paths.space_needed(jid))
    if not _holds_space(status, entry):
        return 0
    writer.add(Create(paths.reservation(jid), codec.encode_int(reserved)))
    return reserved


def _holds_space(status: JobStatus, entry: RecordEntry) -> bool:
    """As the job had a reservation: in a working state, or after a failure that kept the reservation."""
    if status.status is not JobState.FAILED:
        return JOB.facts[status.status].holds_space
    path = paths.history(entry.job)
    lists = [data for name, data in entry.data.items() if name.split("/")[0] == "history"]
    history = [past for data in lists for past in codec.decode(tuple[HistoryEntry, ...], data, path)]
    provisioned = any(past.event is Event.SUCCEED and past.state is JobState.DOWNLOADING for past in history)
    return status.room is Room.KEPT and provisioned


def _finish(session: Session, copied: dict[str, RecordEntry], deployment: Deployment) -> None:
    batch, job = paths.counter("batch"), paths.counter("job")
    for path, entry in copied.items():
        if path not in (batch, job):
            session.ensure_node(path, entry.data[""])
    counters.raise_batches(session, copied[batch].version if batch in copied else 0)
    last = copied[job].data[""] if job in copied else codec.encode_int(0)
    commit(session, [Create(job, last), Create(paths.DEPLOYMENT, codec.encode(deployment))])
