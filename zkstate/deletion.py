"""Jobs and batches are deleted from ZooKeeper in transactions small enough not to delay other clients.

The caller writes the tombstone first: whatever is deleted here must be in the archive.
"""

from collections.abc import Callable, Sequence

from pipeline.records import Batch, HistoryEntry, Job
from pipeline.states import JOB, BatchState, Bucket, Event
from zkstate import batches, histories, jobs, paths, record, space
from zkstate.errors import Ambiguous, Contended, Missing, Refused, Stale
from zkstate.record import Lock
from zkstate.session import Session
from zkstate.transaction import Check, Delete, Operation, commit

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


def delete_job(session: Session, job: Job, by: str) -> Job:
    """Delete a held or failed job for an operator; the batch keeps the job's name among its deleted jobs.

    Returns the job as it would be, with its deletion in the history. Raises Stale, or Busy.
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
            if session.exists(paths.job(job.jid)) is not None:
                continue
        return deleted


def remove_batch(
    session: Session, batch: Batch, on_removed: Callable[[Sequence[str]], bool] = lambda _: True
) -> bool:
    """Remove a deleted batch with all its jobs; interrupted anywhere, it can be called again.

    `on_removed` gets the ids of the jobs of one transaction; once it returns False, the removal ends. The
    result is False then.
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
    key = batches.key_path(batch.submission)
    nodes = [*_tree(session, paths.batch(batch.bid)), paths.open_batch(batch.bid), key]
    commit(session, [Delete(node) for node in nodes if node and session.exists(node) is not None])
    return True


def _remove_jobs(session: Session, bid: str, bucket: Bucket, jids: list[str]) -> None:
    while True:
        operations: list[Operation] = []
        for jid in jids:
            operations += _remains_of(session, jid)
            operations.append(Delete(paths.batch_entry(bid, bucket, jid)))
        try:
            commit(session, operations)
        except Refused:
            jids = [j for j in jids if session.exists(paths.batch_entry(bid, bucket, j)) is not None]
        else:
            return


def _remains_of(session: Session, jid: str) -> list[Operation]:
    try:
        job = jobs.load(session, jid)
    except Missing:
        return [Delete(path) for path in _tree(session, paths.job(jid))]
    entry = paths.queue_entry(job.status.status, job.status.priority, jid)
    queued = [Delete(entry)] if session.exists(entry) is not None else []
    promise = [] if space.reservation_of(session, jid) is None else _return_promise(session, jid)
    return [*queued, *promise, *(Delete(path) for path in _tree(session, paths.job(jid)))]


def _return_promise(session: Session, jid: str) -> list[Operation]:
    """Release the reservation in its own transaction: one transaction can write the sum only once."""
    while operations := space.replace(session, jid, None):
        try:
            commit(session, operations)
        except Contended:
            continue
    return []


def _tree(session: Session, path: str) -> list[str]:
    """A node's descendants and itself, children before parents; nothing if it does not exist."""
    if session.exists(path) is None:
        return []
    below = [node for name in session.children(path) for node in _tree(session, f"{path}/{name}")]
    return [*below, path]
