"""Deletes jobs and batches from ZooKeeper, in transactions small enough not to delay other clients.

The caller writes the tombstone first: whatever is deleted here must be in the archive.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from pipeline.records import Batch, HistoryEntry, Job, JobStatus
from pipeline.states import JOB, BatchState, Bucket, Event
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Delete, Operation, commit
from zkstate.errors import Ambiguous, Contended, Missing, Refused, Stale
from zkstate.record import batches, histories, jobs, record, space
from zkstate.record.node import uncontended
from zkstate.record.record import Lock

CHUNK = 40
"""Jobs removed in one transaction, about ten operations each."""

_NODES = (
    paths.job_bid,
    paths.configuration,
    paths.identifiers,
    paths.job_status,
    paths.priority,
    paths.space_needed,
    paths.history,
)

_LEAVES = frozenset(path("").rpartition("/")[2] for path in _NODES if path is not paths.history)
"""The names of nodes that have no children."""


def delete_job(session: Session, job: Job, by: str) -> Job:
    """Delete a held or failed job for an operator; the batch keeps the job's id among its deleted jobs.

    Returns the deleted job, with its deletion in the history. Raises Stale or Busy.
    """
    target = JOB.next(job.status.status, Event.DELETE)
    status = job.status.model_copy(update={"status": target})
    entry = HistoryEntry(state=target, event=Event.DELETE, by=by, table=JOB.version)
    deleted = job.model_copy(update={"status": status, "history": (*job.history, entry)})
    while True:
        operations = (
            Check(paths.job_status(job.jid), job.version),
            *record.lock_operations(session, job, Lock.FREE),
            Delete(paths.queue_entry(job.status.status, job.status.priority, job.jid)),
            *jobs.change_bucket(job, Bucket.DELETED),
            *(Delete(path) for path in histories.part_paths(job)),
            *(Delete(path(job.jid)) for path in _NODES),
            Delete(paths.job(job.jid)),
            *space.replace(session, job.jid, None),
        )
        try:
            commit(session, operations)
        except Contended:
            continue  # other jobs changed the sum of reserved bytes
        except Ambiguous:
            with suppress(Missing):
                session.get_synced(paths.job(job.jid))
                continue
        return deleted


def remove_batch(
    session: Session, batch: Batch, on_removed: Callable[[Sequence[str]], bool] = lambda _: True
) -> bool:
    """Remove a deleted batch with all its jobs; can be repeated after an interruption at any point.

    `on_removed` gets the ids of the jobs of each transaction; once it returns False, the removal stops and
    returns False.
    """
    if batch.status.status is not BatchState.DELETED:
        raise Stale(f"{batch.bid} is {batch.status.status}: only a deleted batch is removed")
    for bucket in Bucket:
        jids = batches.jobs_in(session, batch.bid, bucket)
        for start in range(0, len(jids), CHUNK):
            chunk = jids[start : start + CHUNK]
            _remove_jobs(session, batch.bid, bucket, chunk)
            if not on_removed(chunk):
                return False
    while nodes := _own_nodes(session, batch):
        with suppress(Refused):  # an operator and scheduled work may remove the same batch
            commit(session, [Delete(node) for node in nodes])
    return True


def _own_nodes(session: Session, batch: Batch) -> list[str]:
    """The existing nodes of the batch itself, without its jobs; a key may belong to a later batch."""
    nodes = [*_trees(session, [paths.batch(batch.bid)]), paths.open_batch(batch.bid)]
    if key := batches.key_path(batch.submission):
        nodes += [key] if (node := session.find(key)) and node[0] == batch.bid.encode() else []
    return [node for node in nodes if session.exists(node) is not None]


def _remove_jobs(session: Session, bid: str, bucket: Bucket, jids: list[str]) -> None:
    """Remove the jobs, at first as if they had only the usual nodes, which takes a third of the reads."""
    usual = True
    while jids:
        remains = _remains_of(session, jids, usual=usual)
        entries = [Delete(paths.batch_entry(bid, bucket, jid)) for jid in jids]
        try:
            commit(session, [*remains, *entries])
        except Refused:
            usual = False
            jids = [j for j in jids if session.exists(paths.batch_entry(bid, bucket, j)) is not None]
        else:
            return


def _remains_of(session: Session, jids: Sequence[str], *, usual: bool) -> list[Operation]:
    """Operations that delete the jobs' znodes and queue entries; their reservations are released at once.

    `usual`: for a job with a status, delete the nodes that every job has, without checking which exist.
    """
    states = session.get_many([paths.job_status(jid) for jid in jids])
    entries, known = [], []
    for jid, node in zip(jids, states, strict=True):
        if node is not None:
            status = codec.decode(JobStatus, node[0], paths.job_status(jid))
            entries.append(paths.queue_entry(status.status, status.priority, jid))
            known.append(jid)
    for jid in set(jids).intersection(session.children(paths.SPACE)):
        _return_promise(session, jid)
    queued = session.exists_many(entries)
    present = [entry for entry, stat in zip(entries, queued, strict=True) if stat is not None]
    if usual:
        nodes = [path(jid) for jid in known for path in (*_NODES, paths.job)]
    else:
        nodes = _trees(session, [paths.job(jid) for jid in jids])
    return [Delete(path) for path in (*present, *nodes)]


def _return_promise(session: Session, jid: str) -> None:
    """Release the reservation in its own transaction: one transaction can write the sum only once."""

    def release() -> None:
        if operations := space.replace(session, jid, None):
            commit(session, operations)

    uncontended(release)


def _trees(session: Session, nodes: Sequence[str]) -> list[str]:
    """Those of the nodes that exist, with all their descendants, children before parents."""
    stats = session.exists_many(nodes)
    level = [node for node, stat in zip(nodes, stats, strict=True) if stat is not None]
    levels: list[str] = []
    while level:
        levels = [*level, *levels]
        parents = [node for node in level if node.rpartition("/")[2] not in _LEAVES]
        names = session.children_of_many(parents)
        level = [f"{node}/{name}" for node, below in zip(parents, names, strict=True) for name in below]
    return levels
