"""The record that jobs and batches share: a status node whose version fences every change, and a lock.

Rule: a change is one transaction under the version that was read. Stale and Busy mean that nothing was
changed; Ambiguous, that the answer was lost and ZooKeeper did not come back in time.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pipeline.principal import Interface
from pipeline.records import Batch, BatchHistoryEntry, FencedStatus, HistoryEntry, Job, Ticket, now
from pipeline.states import BATCH, JOB, Event, FailureKind
from zkstate import codec, paths
from zkstate.errors import Stale
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation, Put, Role, fenced

MESSAGE_LIMIT = 2000
"""Characters of a message in a znode, so that a job stays a few kilobytes."""

BATCH_HISTORY_LIMIT = 200
"""Entries; the oldest ones go first. An operator may request any number of update reports."""

R = TypeVar("R", Job, Batch)
St = TypeVar("St", bound=FencedStatus)


class Lock(Enum):
    """The lock that a move requires, and the effect of the move on the lock."""

    MINE = "mine"
    """This attempt holds the lock; the move releases it."""
    KEEP = "keep"
    """This attempt holds the lock, and continues to work after the move."""
    FREE = "free"
    """No attempt holds the lock; Busy otherwise."""
    BREAK = "break"
    """Whichever attempt holds the lock loses it."""


class HandBack(Enum):
    """Why an attempt releases a record without moving it."""

    UNFINISHED = "unfinished"
    """The worker stops, or the work has to wait."""
    TRIED = "tried"
    """A transient fault: counted as a try, and entered in the history."""
    IN_LINE = "in line"
    """No failure: the record waits for a rate limit."""


@dataclass(frozen=True)
class Move:
    """A change of a record: event, principal and reason."""

    event: Event
    by: str
    message: str = ""
    kind: FailureKind | None = None
    lock: Lock = Lock.MINE
    via: Interface | None = None
    """The interface through which a person requests the move."""


def history_facts(request: Move) -> dict[str, object]:
    """The details of a move in the history, besides the state."""
    return {
        "event": request.event,
        "by": request.by,
        "message": request.message,
        "kind": request.kind,
        "via": request.via,
    }


def token() -> str:
    """A value that no other write has, so that a writer whose answer was lost recognises its own."""
    return uuid.uuid4().hex


def status_path(record: Job | Batch) -> str:
    return paths.job_status(record.jid) if isinstance(record, Job) else paths.batch_status(record.bid)


def lock_path(record: Job | Batch) -> str:
    return paths.job_lock(record.jid) if isinstance(record, Job) else paths.batch_lock(record.bid)


def ticket(record: Job | Batch) -> Ticket:
    return Ticket(id=record.id, state=record.status.status, epoch=record.status.epoch)


def write(
    session: Session, record: R, status: FencedStatus, operations: Sequence[Operation], **updates: object
) -> R:
    """Commit `status` with `operations`; the record with its new status, its new version and `updates`."""
    path = status_path(record)
    version = fenced(
        session,
        Put(path, codec.encode(status), record.version),
        operations,
        lambda data: codec.decode(type(status), data, path).op == status.op,
    )
    return record.model_copy(update={"status": status, "version": version, **updates})


def acquire(session: Session, record: R, ticket: Ticket, by: str) -> R:
    """Take the lock and count the attempt, in one transaction; Stale if the ticket is not for this epoch."""
    status = record.status
    if (status.status, status.epoch) != (ticket.state, ticket.epoch):
        raise Stale(f"{record.id} is now {status.status} in epoch {status.epoch}")
    taken = status.model_copy(update={"op": token(), "attempt": status.attempt + 1})
    lock = Create(lock_path(record), f"{taken.op} {by}".encode(), ephemeral=True, role=Role.LOCK)
    return write(session, record, taken, (lock,))


def hand_back(
    session: Session,
    record: R,
    by: str,
    *,
    message: str = "",
    delay: float = 0,
    why: HandBack = HandBack.UNFINISHED,
) -> R:
    """Release the lock without moving; the sweep dispatches the record again after `delay` seconds."""
    status = record.status.model_copy(
        update={
            "message": message[:MESSAGE_LIMIT] or record.status.message,
            "epoch": record.status.epoch + 1,
            "op": token(),
            "delay": delay,
            "tries": record.status.tries + (why is HandBack.TRIED),
            "in_line": why is HandBack.IN_LINE,
        }
    )
    if why is not HandBack.TRIED:
        return write(session, record, status, lock_operations(session, record, Lock.MINE))
    state = record.status.status
    facts = {"by": by, "message": status.message, "kind": FailureKind.TRANSIENT}
    history, put = extend_history(record, state, facts)
    return write(
        session, record, status, (*lock_operations(session, record, Lock.MINE), put), history=history
    )


def redispatch(session: Session, record: R, *, lost: bool) -> Ticket:
    """A new ticket under a new epoch, which voids every older one; `lost` counts a worker that died."""
    status = record.status.model_copy(
        update={
            "epoch": record.status.epoch + 1,
            "op": token(),
            "delay": 0,
            "in_line": False,
            "dispatched_at": now(),
            "redispatches": record.status.redispatches + lost,
        }
    )
    write(session, record, status, lock_operations(session, record, Lock.FREE))
    return Ticket(id=record.id, state=status.status, epoch=status.epoch)


def next_epoch(was: St, changes: Mapping[str, object]) -> St:
    """The status with `changes`, in a new epoch in which nothing has been tried yet."""
    beginning = {"epoch": was.epoch + 1, "op": token(), "redispatches": 0, "tries": 0, "delay": 0}
    return was.model_copy(update={**beginning, "in_line": False, **changes})


def lock_operations(session: Session, record: Job | Batch, lock: Lock) -> tuple[Operation, ...]:
    path = lock_path(record)
    delete = Delete(path, role=Role.LOCK)
    match lock:
        case Lock.KEEP:
            return ()
        case Lock.MINE:
            return (delete,)
        case Lock.BREAK if session.exists(path) is not None:
            return (delete,)
        case _:
            return Create(path, ephemeral=True, role=Role.LOCK), delete  # leaves nothing behind


def extend_history(
    record: Job | Batch, state: str, facts: Mapping[str, object]
) -> tuple[tuple[HistoryEntry, ...] | tuple[BatchHistoryEntry, ...], Operation]:
    """The history with one more entry made of `facts`, and the operation that writes the history."""
    table = JOB.version if isinstance(record, Job) else BATCH.version
    facts = {"state": state, "table": table, **facts}
    if isinstance(record, Job):
        history = (*record.history, HistoryEntry.model_validate(facts))
        return history, Put(paths.history(record.jid), codec.encode_history(history))
    path = paths.batch_history(record.bid)
    entries = (*record.history, BatchHistoryEntry.model_validate(facts))[-BATCH_HISTORY_LIMIT:]
    data = codec.encode_history(entries)
    # a batch of release 0.1.0 has no history until its next move
    return entries, Put(path, data) if record.history else Create(path, data)
