"""A job's record: load, acquire, move, hand back. A move is one transaction; nobody else moves a job."""

import uuid
from collections.abc import Sequence
from enum import Enum

from pipeline.outcome import Done
from pipeline.records import (
    HistoryEntry,
    Identifiers,
    Job,
    JobConfiguration,
    JobStatus,
    OwedCallback,
    Ticket,
    now,
)
from pipeline.states import JOB, Bucket, Event, FailureKind, JobState, bucket
from zkstate import codec, paths, space
from zkstate.errors import Missing, Refused, Stale
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation, Put, commit, fenced_under

MESSAGE_LIMIT = 2000
"""Characters of a message kept in a znode, so that a job stays a few kilobytes."""


class Lock(Enum):
    """What a move expects of the job's lock."""

    MINE = "mine"
    FREE = "free"
    BREAK = "break"


def token() -> str:
    return uuid.uuid4().hex


def load(session: Session, jid: str) -> Job:
    """The whole job in one flight of reads; Missing or Corrupt names the path."""
    wanted = (
        paths.job_status(jid),
        paths.configuration(jid),
        paths.identifiers(jid),
        paths.space_needed(jid),
        paths.history(jid),
    )
    found = session.get_many(wanted)
    if all(node is None for node in found):
        raise Missing(f"there is no job {jid}")
    nodes = []
    for path, node in zip(wanted, found, strict=True):
        if node is None:
            raise Missing(f"job {jid} is incomplete: znode {path} is missing; see `arkline audit`")
        nodes.append(node)
    (status, stat), (configuration, _), (identifiers, _), (needed, _), (history, _) = nodes
    record = codec.decode(JobStatus, status, wanted[0])
    configured = codec.decode(JobConfiguration, configuration, wanted[1])
    return Job(
        jid=jid,
        bid=configured.batch_id,
        configuration=configured,
        identifiers=codec.decode(Identifiers, identifiers, wanted[2]),
        status=record,
        version=stat.version,
        priority=record.priority,
        space_needed=codec.decode_int(needed, wanted[3]),
        history=codec.decode_history(history, wanted[4]),
    )


def acquire(session: Session, ticket: Ticket, by: str) -> Job:
    """Take the job's lock and mark the attempt, in one transaction; Stale or Busy changes nothing."""
    job = load(session, ticket.id)
    if (job.status.status, job.status.epoch) != (ticket.state, ticket.epoch):
        raise Stale(f"{job.jid} is {job.status.status} in epoch {job.status.epoch} by now")
    mark = token()
    status = job.status.model_copy(update={"op": mark, "attempt": job.status.attempt + 1})
    lock = Create(paths.job_lock(job.jid), f"{mark} {by}".encode(), ephemeral=True)
    version = _write(session, job, status, (lock,))
    return job.model_copy(update={"status": status, "version": version})


def move(  # noqa: PLR0913 - a move is told everything it commits
    session: Session,
    job: Job,
    event: Event,
    by: str,
    *,
    done: Done | None = None,
    message: str = "",
    kind: FailureKind | None = None,
    lock: Lock = Lock.MINE,
) -> Job:
    """Take the job where `event` leads, with its queue entry, batch entry, history, lock and promise.

    Raises IllegalTransition, Stale (the record moved on, or the lock is gone) or Busy (a lock that
    should be free is held). Refused on the sum of promises means that `done.reservation` is void.
    """
    done = done or Done()
    source = job.status.status
    target = JOB.next(source, event, job.status.last_successful_status, job.status.kind)
    text = (message or done.message)[:MESSAGE_LIMIT]
    status = _moved(job, event, target, text, kind, done)
    entry = HistoryEntry(
        state=target,
        event=event,
        at=status.last_modification_date,
        by=by,
        message=text,
        kind=status.kind,
        table=JOB.version,
    )
    needed = job.space_needed if done.space_needed is None else done.space_needed
    operations: list[Operation] = [
        *_relocate(job, target, status.priority),
        Put(paths.history(job.jid), codec.encode_history((*job.history, entry))),
        *_lock(session, job.jid, lock),
    ]
    if done.space_needed is not None:
        operations.append(Put(paths.space_needed(job.jid), codec.encode_int(needed)))
    if target is JobState.FAILED and source is not JobState.NOTIFY:
        # a job that fails in notify has met the failure of its callback already
        operations.append(Create(paths.owed_callback(job.jid, status.epoch), codec.encode(OwedCallback())))
    if done.priority is not None:
        operations.append(Put(paths.priority(job.jid), codec.encode_int(done.priority)))
    while True:
        if event is Event.FAIL and lock is not Lock.MINE:
            promise: Sequence[Operation] = space.replace(session, job.jid, None)
        else:
            promise = _promise(session, job, event, target, done, needed)
        try:
            version = _write(session, job, status, (*operations, *promise))
        except Refused as refusal:
            if refusal.path != paths.SPACE or done.reservation is not None:
                raise
            continue
        return job.model_copy(
            update={
                "status": status,
                "version": version,
                "priority": status.priority,
                "space_needed": needed,
                "history": (*job.history, entry),
            }
        )


def _moved(
    job: Job, event: Event, target: JobState, text: str, kind: FailureKind | None, done: Done
) -> JobStatus:
    was = job.status
    moment = now()
    return was.model_copy(
        update={
            "status": target,
            "last_successful_status": (was.status if event is Event.SUCCEED else was.last_successful_status),
            "last_modification_date": moment,
            "retry_count": was.retry_count + (event is Event.RESUME),
            "message": text,
            "kind": kind if event is Event.FAIL else None,
            "priority": was.priority if done.priority is None else done.priority,
            "epoch": was.epoch + 1,
            "op": token(),
            "dispatched_at": None if target is JobState.PENDING else moment,
            "redispatches": 0,
            "tries": 0,
            "delay": 0,
        }
    )


def _relocate(job: Job, target: JobState, priority: int) -> list[Operation]:
    source = job.status.status
    operations: list[Operation] = [
        Delete(paths.queue_entry(source, job.status.priority, job.jid)),
        Create(paths.queue_entry(target, priority, job.jid)),
    ]
    if bucket(source) is not bucket(target):
        operations += rebucket(job, bucket(target))
    return operations


def rebucket(job: Job, target: Bucket) -> tuple[Operation, ...]:
    return (
        Delete(paths.batch_entry(job.bid, bucket(job.status.status), job.jid)),
        Create(paths.batch_entry(job.bid, target, job.jid)),
    )


def _lock(session: Session, jid: str, lock: Lock) -> tuple[Operation, ...]:
    path = paths.job_lock(jid)
    if lock is Lock.MINE:
        return (Delete(path),)
    if lock is Lock.BREAK and session.exists(path) is not None:
        return (Delete(path),)
    return nobody_holds(path)


def nobody_holds(path: str) -> tuple[Operation, ...]:
    """Refused if there is a lock; leaves nothing behind."""
    return Create(path, ephemeral=True), Delete(path)


def _promise(
    session: Session, job: Job, event: Event, target: JobState, done: Done, needed: int
) -> Sequence[Operation]:
    if done.reservation is not None:
        return space.grant(job.jid, done.reservation)
    if not JOB.facts[target].holds_space:
        return ()
    if event is Event.RESUME or (event is Event.SUCCEED and needed != job.space_needed):
        return space.replace(session, job.jid, needed)
    return ()


def hand_back(
    session: Session,
    job: Job,
    by: str,
    *,
    message: str = "",
    delay: float = 0,
    tried: bool = False,
) -> Job:
    """Release the lock without moving: the job waits in its state, under a new epoch.

    `tried` counts a try that met a passing fault, and puts its message into the history.
    """
    status = job.status.model_copy(
        update={
            "message": message[:MESSAGE_LIMIT] or job.status.message,
            "epoch": job.status.epoch + 1,
            "op": token(),
            "delay": delay,
            "tries": job.status.tries + tried,
        }
    )
    history = job.history
    operations: list[Operation] = [Delete(paths.job_lock(job.jid))]
    if tried:
        again = HistoryEntry(state=status.status, by=by, message=status.message, kind=FailureKind.TRANSIENT)
        history = (*history, again)
        operations.append(Put(paths.history(job.jid), codec.encode_history(history)))
    version = _write(session, job, status, operations)
    return job.model_copy(update={"status": status, "version": version, "history": history})


def redispatch(session: Session, job: Job, *, lost: bool) -> Ticket:
    """A new ticket under a new epoch, which voids every older one; `lost` counts it as a lost worker."""
    status = job.status.model_copy(
        update={
            "epoch": job.status.epoch + 1,
            "op": token(),
            "delay": 0,
            "dispatched_at": now(),
            "redispatches": job.status.redispatches + lost,
        }
    )
    _write(session, job, status, nobody_holds(paths.job_lock(job.jid)))
    return Ticket(id=job.jid, state=status.status, epoch=status.epoch)


def ticket(job: Job) -> Ticket:
    return Ticket(id=job.jid, state=job.status.status, epoch=job.status.epoch)


def clean_up(session: Session, job: Job) -> None:
    """After completion: the promise and the queue entry go; the record stays. Repeating it is harmless."""
    JOB.next(job.status.status, Event.CLEAN_UP)
    entry = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    while session.exists(entry) is not None:
        promise = space.replace(session, job.jid, None)
        try:
            commit(session, (Delete(entry), *promise))
        except Refused as refusal:
            if refusal.path not in (paths.SPACE, paths.reservation(job.jid), entry):
                raise
        else:
            return


def _write(session: Session, job: Job, status: JobStatus, others: Sequence[Operation]) -> int:
    path = paths.job_status(job.jid)
    return fenced_under(
        session,
        Put(path, codec.encode(status), job.version),
        others,
        lambda data: codec.decode(JobStatus, data, path).op == status.op,
        paths.job_lock(job.jid),
    )
