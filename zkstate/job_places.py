"""Where a job stands: its entry in the queue of its state, and its entry in its batch."""

from collections.abc import Sequence
from typing import Any

from pipeline.records import Job, JobStatus
from pipeline.states import JOB, Bucket, Event, JobState, bucket
from zkstate import paths
from zkstate.transaction import Create, Delete, Operation, Put


def change_queue(job: Job, status: JobStatus) -> tuple[Operation, ...]:
    """From one queue to another and, where the target has another bucket, within the batch.

    A completed job has no entry in a queue. The entries in the batch change first, so that whoever follows
    the changes always finds the job in one place at least.
    """
    source, target = job.status.status, status.status
    left = Delete(paths.queue_entry(source, job.status.priority, job.jid))
    entered = Create(paths.queue_entry(target, status.priority, job.jid))
    queues = (left,) if is_done(target) else (left, entered)
    return queues if bucket(source) is bucket(target) else (*change_bucket(job, bucket(target)), *queues)


def is_done(state: JobState) -> bool:
    """Nothing is left of the job but its record: whoever moved it there removes its working directory."""
    return bool(JOB.rows(state, Event.CLEAN_UP))


def count_unended(job: Job, status: JobStatus) -> tuple[Operation, ...]:
    """Operations of a move whose last result tells how many jobs of the batch have not ended."""
    if JOB.facts[status.status].ended and bucket(job.status.status) is Bucket.PROCESSING:
        return (Put(paths.bucket(job.bid, Bucket.PROCESSING), b""),)
    return ()


def unended(counting: Sequence[Operation], results: Sequence[Any]) -> dict[str, object]:
    """How many jobs have not ended; None if the move did not count, or its answer was lost."""
    return {"unended": results[-1].numChildren if counting and results else None}


def change_bucket(job: Job, target: Bucket) -> tuple[Operation, ...]:
    return (
        Create(paths.batch_entry(job.bid, target, job.jid)),
        Delete(paths.batch_entry(job.bid, bucket(job.status.status), job.jid)),
    )
