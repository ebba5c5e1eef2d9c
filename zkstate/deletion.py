"""Taking jobs and batches out of ZooKeeper, in transactions small enough to disturb nobody.

The caller writes the tombstone first: what is gone from here must be found in the archive.
"""

from pipeline.records import Batch, Job
from pipeline.states import JOB, BatchState, Bucket, Event
from zkstate import batches, jobs, paths, space
from zkstate.errors import Ambiguous, Busy, Missing, Refused, Stale
from zkstate.session import Session
from zkstate.transaction import Check, Delete, Operation, commit, is_taken

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


def delete_job(session: Session, job: Job) -> Job:
    """An operator's deletion of a held or failed job; its batch keeps its name among the deleted."""
    target = JOB.next(job.status.status, Event.DELETE)
    deleted = job.model_copy(update={"status": job.status.model_copy(update={"status": target})})
    while True:
        operations = (
            Check(paths.job_status(job.jid), job.version),
            *jobs.nobody_holds(paths.job_lock(job.jid)),
            Delete(paths.queue_entry(job.status.status, job.status.priority, job.jid)),
            *jobs.rebucket(job, Bucket.DELETED),
            *(Delete(path(job.jid)) for path in _NODES),
            Delete(paths.job(job.jid)),
            *space.replace(session, job.jid, None),
        )
        try:
            commit(session, operations)
        except Refused as refusal:
            if refusal.path == paths.job_lock(job.jid) and is_taken(refusal):
                raise Busy(f"{job.jid} is being worked on") from refusal
            if refusal.path == paths.job_status(job.jid):
                raise Stale(f"{job.jid} has changed since it was read") from refusal
            if refusal.path != paths.SPACE:
                raise
        except Ambiguous:
            if session.exists(paths.job(job.jid)) is None:
                return deleted
        else:
            return deleted


def remove_batch(session: Session, batch: Batch) -> None:
    """Remove a deleted batch with all its jobs; interrupted anywhere, it can be called again."""
    if batch.status.status is not BatchState.DELETED:
        raise Stale(f"{batch.bid} is {batch.status.status}: only a deleted batch is removed")
    for bucket in Bucket:
        jids = batches.jobs_in(session, batch.bid, bucket)
        for start in range(0, len(jids), CHUNK):
            _remove_jobs(session, batch.bid, bucket, jids[start : start + CHUNK])
    nodes = [*_tree(session, paths.batch(batch.bid)), paths.open_batch(batch.bid), *_key(batch)]
    there = [node for node in nodes if session.exists(node) is not None]
    commit(session, [Delete(node) for node in there])


def _key(batch: Batch) -> tuple[str, ...]:
    path = batches.key_path(batch.submission)
    return (path,) if path else ()


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
    """Given back at once, in a transaction of its own: one transaction can write the sum only once."""
    while operations := space.replace(session, jid, None):
        try:
            commit(session, operations)
        except Refused as refusal:
            if refusal.path not in (paths.SPACE, paths.reservation(jid)):
                raise
    return []


def _tree(session: Session, path: str) -> list[str]:
    """A node's descendants and itself, children before parents; nothing if it does not exist."""
    if session.exists(path) is None:
        return []
    below = [each for name in session.children(path) for each in _tree(session, f"{path}/{name}")]
    return [*below, path]
