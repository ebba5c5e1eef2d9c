"""Jobs that a benchmark completes itself: their znodes are as a fleet leaves those of a completed job."""

from contextlib import suppress
from itertools import islice

from pipeline.records import HistoryEntry, Job
from pipeline.states import JOB, Bucket, Event, JobState
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Put, commit
from zkstate.errors import Refused
from zkstate.queue import listings
from zkstate.record import jobs, record

CHUNK = 20
"""Jobs per transaction."""


def write_ends(session: Session, bid: str, count: int) -> None:
    """Complete the last `count` pending jobs of the batch, youngest first; a fleet may take some of them."""
    waiting = reversed(listings.of_batch(session, bid, JobState.PENDING)[-count:])
    while chunk := list(islice(waiting, CHUNK)):
        operations = [operation for job in jobs.load_many(session, chunk) for operation in _end(job)]
        with suppress(Refused):
            commit(session, operations)


def _end(job: Job) -> list[Operation]:
    state = job.status.status
    history = list(job.history)
    while state is not JobState.COMPLETED:
        event = Event.ACQUIRE if state is JobState.PENDING else Event.SUCCEED
        state = JOB.next(state, event)
        history.append(HistoryEntry(state=state, event=event, by="benchmark", table=JOB.version))
    changes = {
        "status": state,
        "last_successful_status": history[-2].state,
        "attempt": len(history) - 1,
        "dispatched_at": history[-1].at,
    }
    status = record.next_epoch(job.status, changes)
    return [
        Put(paths.job_status(job.jid), codec.encode(status), job.version),
        Put(paths.history(job.jid), codec.encode_history(tuple(history))),
        Delete(paths.queue_entry(JobState.PENDING, job.status.priority, job.jid)),
        Delete(paths.batch_entry(job.bid, Bucket.PROCESSING, job.jid)),
        Create(paths.batch_entry(job.bid, Bucket.COMPLETED, job.jid)),
    ]
