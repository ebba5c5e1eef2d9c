"""A logical copy of the record, while the fleet works: the primary nodes, batch by batch.

Rule: the entries of queues, batches and reservations are not copied, because they follow from the nodes that
are. A batch is read together with the names of its jobs, a job's nodes between two equal versions of its
status; counters are read last, so that no copied job has a number above them.
"""

from collections.abc import Iterator, Sequence

from pipeline.backup_files import NodeCopy, RecordEntry
from pipeline.records import BatchStatus
from pipeline.states import BatchState, Bucket
from zkstate import batches, codec, ownership, paths
from zkstate.errors import Busy, Missing
from zkstate.ownership import owned
from zkstate.session import Session

PAGE = 100
"""Jobs whose nodes are requested at once: some 700 answers of a few kilobytes."""

TRIES = 100
"""Readings of a batch or a job that changes while it is read."""

BATCH_NODES = ("submission", "profile", "status", "history", "status-report")
JOB_NODES = ("bid", "configuration", "identifiers", "status", "priority", "space_needed", "history")
_WITH_CHILDREN = ("history", "report-parts")


def read_record(session: Session) -> Iterator[RecordEntry]:
    """Every batch with its jobs, and the single nodes; Busy if a batch changes with every reading."""
    yield from _singles(session, "/submission-keys")
    for bid in ownership.children(session, paths.BATCHES):
        yield from _batch(session, bid)
    for folder in (paths.HOLDS, paths.DRAINS, "/locks/queue", paths.CALLBACKS, "/actions/collections"):
        yield from _singles(session, folder)
    yield from _nodes(session, ["/actions/queue"])
    yield from _singles(session, "/ids")


def _singles(session: Session, folder: str) -> Iterator[RecordEntry]:
    names = owned(folder, session.children(folder))
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
    status = session.find(paths.batch_status(bid))
    if status is None:
        return True
    return codec.decode(BatchStatus, status[0], paths.batch_status(bid)).status is BatchState.DELETED


def _batch_with_jobs(session: Session, bid: str) -> tuple[RecordEntry, list[str], list[str]] | None:
    """The batch, the names of its jobs, and of its deleted jobs; None if the batch is gone."""
    path = paths.batch(bid)
    for _ in range(TRIES):
        before = session.find(paths.batch_status(bid))
        if before is None:
            return None
        status = codec.decode(BatchStatus, before[0], paths.batch_status(bid))
        nodes = _copies(session, path, BATCH_NODES)
        nodes += _children(session, path, "report-parts")
        # unended jobs first and last: a job that ends, or is resumed, is in one of the listings
        unended = set(batches.jobs_in(session, bid, Bucket.PROCESSING))
        ended = {name: set(batches.jobs_in(session, bid, name)) for name in Bucket}
        deleted = ended[Bucket.DELETED]
        every = unended.union(*ended.values())
        after = session.exists(paths.batch_status(bid))
        unchanged = after is not None and after.mzxid == before[1].mzxid
        if unchanged and (len(every) == status.created or status.status is BatchState.DELETED):
            return RecordEntry(batch=bid, nodes=tuple(nodes)), sorted(every - deleted), sorted(deleted)
    raise Busy(f"{bid} kept changing while it was read; try again")


def _jobs(session: Session, bid: str, jids: Sequence[str]) -> Iterator[RecordEntry]:
    """The jobs of a page; a job that was deleted meanwhile has no nodes."""
    left = list(jids)
    for _ in range(TRIES):
        before = session.exists_many([paths.job_status(jid) for jid in left])
        # a list: what is read lazily is read after the second look at the status
        read = list(_read_jobs(session, left))
        after = session.exists_many([paths.job_status(jid) for jid in left])
        changed = []
        for jid, nodes, first, last in zip(left, read, before, after, strict=True):
            if last is None:
                yield RecordEntry(batch=bid, job=jid)
            elif first is not None and first.mzxid == last.mzxid:
                yield RecordEntry(batch=bid, job=jid, nodes=tuple(nodes))
            else:
                changed.append(jid)
        left = changed
        if not left:
            return
    raise Busy(f"{left[0]} kept changing while it was read; try again")


def _read_jobs(session: Session, jids: Sequence[str]) -> Iterator[list[NodeCopy]]:
    places = [f"{paths.job(jid)}/{name}" for jid in jids for name in JOB_NODES]
    answers = iter(session.get_many(places))
    for jid in jids:
        nodes = []
        for name in JOB_NODES:
            node = next(answers)
            if node is not None:
                nodes.append(NodeCopy(name=name, data=node[0]))
                if node[1].numChildren:
                    nodes += _children(session, paths.job(jid), name)
        yield nodes


def _copies(session: Session, path: str, names: Sequence[str]) -> list[NodeCopy]:
    """The nodes of a batch that exist, with the parts of long ones."""
    nodes = []
    answers = session.get_many([f"{path}/{name}" for name in names])
    for name, node in zip(names, answers, strict=True):
        if node is not None:
            nodes.append(NodeCopy(name=name, data=node[0]))
            if name in _WITH_CHILDREN and node[1].numChildren:
                nodes += _children(session, path, name)
    return nodes


def _children(session: Session, path: str, folder: str) -> list[NodeCopy]:
    names = [f"{folder}/{name}" for name in sorted(session.children(f"{path}/{folder}"))]
    if not names:
        return []
    copies = []
    for name, node in zip(names, session.get_many([f"{path}/{name}" for name in names]), strict=True):
        if node is None:
            raise Missing(f"znode {path}/{name} is missing")
        copies.append(NodeCopy(name=name, data=node[0]))
    return copies
