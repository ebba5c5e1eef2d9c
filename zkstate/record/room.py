"""Failed jobs give up their part of working storage when other jobs need the room.

Rule: a failed job changes here as everywhere, in one transaction under its version, so that a job that is
resumed at the same moment keeps what it has.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pipeline.records import Job, JobStatus
from pipeline.states import JobState, Room
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Operation, Role, token
from zkstate.errors import Contended, Stale
from zkstate.record import histories, jobs, record, space
from zkstate.record.reading import read_each
from zkstate.record.record import Lock

YIELDED = "its reservation of working storage was given to other jobs"
EMPTIED = "its content was removed from working storage, because other jobs need the room"


def failed_jobs(session: Session, jids: Sequence[str]) -> dict[str, JobStatus]:
    """Those of the jobs that have failed, the oldest failure first; damaged ones are left out."""
    decode = partial(codec.decode, JobStatus)
    read = read_each(session, jids, paths.job_status, decode)
    failed = [(jid, status) for jid, status, _ in read if status.status is JobState.FAILED]
    return dict(sorted(failed, key=lambda entry: entry[1].since))


def yield_reservation(session: Session, jid: str, by: str) -> None:
    """Return a failed job's reservation; its content stays. Stale or Busy if the job has changed."""
    job = _failed(session, jid)
    _give_up(session, job, by, Room.YIELDED, YIELDED, record.lock_operations(session, job, Lock.FREE))


@contextmanager
def emptying(session: Session, jid: str, by: str) -> Iterator[Job]:
    """Lock a failed job while its content is removed; then it has no reservation and is EMPTY.

    Raises Busy or Stale if the job is not failed any more. A crash inside leaves a job with a reservation and
    without its content; the next removal makes that good, and so does a resume.
    """
    job = _failed(session, jid)
    taken = job.status.model_copy(update={"op": token()})
    lock = Create(record.lock_path(job), f"{taken.op} {by}".encode(), ephemeral=True, role=Role.LOCK)
    locked = record.write(session, job, taken, (lock,))
    yield locked
    _give_up(session, locked, by, Room.EMPTY, EMPTIED, record.lock_operations(session, locked, Lock.MINE))


def _failed(session: Session, jid: str) -> Job:
    job = jobs.load(session, jid)
    if job.status.status is not JobState.FAILED:
        raise Stale(f"{jid} is {job.status.status}")
    return job


def _give_up(
    session: Session, job: Job, by: str, room: Room, message: str, lock: Sequence[Operation]
) -> None:
    status = job.status.model_copy(update={"op": token(), "room": room})
    extended = histories.extend(job, job.status.status, {"by": by, "message": message})
    while True:
        operations = (*lock, *extended.operations, *space.replace(session, job.jid, None))
        try:
            record.write(session, job, status, operations)
        except Contended:
            continue  # other jobs changed the sum of reserved bytes
        return
