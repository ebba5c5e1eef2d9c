"""The common part of job and batch records: a status node whose version fences every change, and a lock.

Rule: a change is one transaction under the version that was read. Stale and Busy mean that nothing was
changed; Ambiguous, that the answer was lost and ZooKeeper did not come back in time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

from kazoo.protocol.states import ZnodeStat

from pipeline.causes import FailureCause
from pipeline.outcome import WaitKind, WaitsFor
from pipeline.principal import Interface
from pipeline.records import Batch, BatchStatus, FencedStatus, Job, JobStatus, Ticket, digest_of, now
from pipeline.states import BATCH, JOB, Event, FailureKind
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Create, Delete, Operation, Put, Role, fenced, token
from zkstate.errors import Corrupt, Stale
from zkstate.record import histories
from zkstate.record.histories import Extended
from zkstate.record.node import log_damage, read_each

MESSAGE_LIMIT = 2000
"""Characters of a message in a znode, so that a job stays a few kilobytes."""

_ANY = -1
"""Any version of a lock: only its existence is checked, because a request to yield is a write to the lock."""

R = TypeVar("R", Job, Batch)
St = TypeVar("St", bound=FencedStatus)


class Lock(Enum):
    """The lock that a move requires, and the effect of the move on the lock."""

    MINE = "mine"
    """This attempt holds the lock; the move releases it."""
    KEEP = "keep"
    """This attempt holds the lock, and continues to work after the move."""
    CARRY = "carry"
    """This attempt holds the lock; with the move the same process begins the attempt at the next state."""
    TAKE = "take"
    """No attempt holds the lock (Busy otherwise); the move takes it, for the attempt at the next state."""
    FREE = "free"
    """No attempt holds the lock; Busy otherwise."""
    BREAK = "break"
    """Whichever attempt holds the lock loses it."""


@dataclass(frozen=True)
class Move:
    """A change of a record: event, principal and reason."""

    event: Event
    by: str
    message: str = ""
    kind: FailureKind | None = None
    lock: Lock = Lock.MINE
    cause: FailureCause | None = None
    via: Interface | None = None
    """The interface through which a person requests the move."""
    request_id: str | None = None

    @property
    def facts(self) -> dict[str, object]:
        """The details of the move in the history, besides the state."""
        names = ("event", "by", "message", "kind", "cause", "via", "request_id")
        return {name: getattr(self, name) for name in names}


def with_cause(message: str, cause: FailureCause | None) -> dict[str, object]:
    """The fields of a status with this message, cut as a znode requires."""
    text = message[:MESSAGE_LIMIT]
    return {"message": text, "cause": cause, "cause_of": digest_of(text) if cause else None}


def status_path(record: Job | Batch) -> str:
    return paths.job_status(record.jid) if isinstance(record, Job) else paths.batch_status(record.bid)


def lock_path(record: Job | Batch) -> str:
    return paths.job_lock(record.jid) if isinstance(record, Job) else paths.batch_lock(record.bid)


def ticket(record: Job | Batch) -> Ticket:
    return Ticket(id=record.id, state=record.status.status, epoch=record.status.epoch)


def write(
    session: Session,
    record: R,
    status: FencedStatus,
    operations: Sequence[Operation],
    facts_of: Callable[[Sequence[Any]], Mapping[str, object]] = lambda _: {},
    **updates: object,
) -> R:
    """Commit `status` with `operations`; returns the record with new status, new version and `updates`.

    `facts_of`: further updates, computed from the operations' results; gets none if the answer was lost.
    """
    path = status_path(record)

    def has_token(of: FencedStatus, data: bytes) -> bool:
        return codec.decode(type(status), data, path).op == of.op

    version, results = fenced(
        session,
        Put(path, codec.encode(status), record.version),
        operations,
        partial(has_token, status),
        partial(has_token, record.status),
    )
    return record.model_copy(update={"status": status, "version": version, **updates, **facts_of(results)})


def check_ticket(record: Job | Batch, ticket: Ticket) -> None:
    """Stale if the ticket is not for the record's state and epoch, or if no worker works in that state."""
    status = record.status
    if (status.status, status.epoch) != (ticket.state, ticket.epoch):
        raise Stale(f"{record.id} is now {status.status} in epoch {status.epoch}")
    _require_working(record)


def _require_working(record: Job | Batch) -> None:
    if record.status.status not in (JOB if isinstance(record, Job) else BATCH).working():
        raise Stale(f"{record.id} is {record.status.status}: there is nothing to do")


def acquire(session: Session, record: R, ticket: Ticket, by: str) -> R:
    """Take the lock and count the attempt, in one transaction; Stale if the ticket is not for this epoch."""
    check_ticket(record, ticket)
    status = record.status
    changes = {"op": token(), "attempt": status.attempt + 1, "handed_back": False, "waits_for": None}
    taken: FencedStatus = status.model_copy(update=changes)
    return write(session, record, taken, (*take_lock(record, taken, by), *leave_waiting(session, record)))


def take_lock(record: Job | Batch, taken: FencedStatus, by: str) -> tuple[Operation, ...]:
    """Operations that take the lock.

    Busy if an attempt holds the lock; Stale if one wrote the identifiers after the job had been read. From
    then on, only the holder of the lock writes the identifiers.
    """
    lock = Create(lock_path(record), f"{taken.op} {by}".encode(), ephemeral=True, role=Role.LOCK)
    if not isinstance(record, Job) or record.identifiers_version is None:
        return (lock,)
    return lock, Check(paths.identifiers(record.jid), record.identifiers_version)


def hand_back(  # noqa: PLR0913 - the facts of one hand-back
    session: Session,
    record: R,
    by: str,
    *,
    message: str = "",
    delay: float = 0,
    waits_for: WaitsFor | None = None,
    lock: Lock = Lock.MINE,
    met: bool = True,
) -> R:
    """Release the record without moving it; the sweep dispatches it again after `delay` seconds.

    `waits_for`: None if the record need not wait. A retry counts as a try, and is entered in the history.
    `lock`: FREE if no attempt has taken the record. `met`: False if the service was not even called.
    """
    status = record.status
    kind = waits_for.kind if waits_for else ""
    enter: tuple[Operation, ...] = _enter_waiting(session, record) if waits_for else ()
    status = _begin_epoch(
        status,
        message=message[:MESSAGE_LIMIT] or status.message,
        delay=delay,
        tries=status.tries + (kind == WaitKind.RETRY),
        service_faults=status.service_faults + (kind == WaitKind.SERVICE and met),
        handed_back=True,
        waits_for=waits_for and waits_for.model_copy(update={"since": now(), "listed": bool(enter)}),
    )
    operations: tuple[Operation, ...] = (*lock_operations(session, record, lock), *enter)
    if kind != WaitKind.RETRY:
        return write(session, record, status, operations)
    facts = {"by": by, "message": status.message, "kind": FailureKind.TRANSIENT}
    extended: Extended = histories.extend(record, record.status.status, facts)
    return write(session, record, status, (*operations, *extended.operations), **extended.changes)


def _enter_waiting(session: Session, record: Job | Batch) -> tuple[Operation, ...]:
    """Operations to list a job that gives up its place; a release without the list may have left an entry."""
    if not (isinstance(record, Job) and JOB.facts[record.status.status].occupies_place):
        return ()
    path = paths.waiting(record.jid)
    if session.exists(path) is not None:
        return (Put(path, b""),)
    return (Create(path),)


def leave_waiting(session: Session, record: Job | Batch) -> tuple[Operation, ...]:
    """Operations to unlist a job that waited; if its entry was removed by hand, the job must not be stuck."""
    waits_for = record.status.waits_for
    if not (isinstance(record, Job) and waits_for and waits_for.listed):
        return ()
    path = paths.waiting(record.jid)
    return (Delete(path),) if session.exists(path) is not None else ()


def redispatch(session: Session, record: R, *, lost: bool, probe: str = "") -> Ticket:
    """Make a ticket under a new epoch, which voids every older one; `lost` counts a worker that died.

    `probe`: the outage that the record probes. Stale if no worker works in the record's state; the callback
    of a failure, for example, would be void in another epoch.
    """
    _require_working(record)
    status = dispatched(record.status, lost=lost, probe=probe)
    operations = (*lock_operations(session, record, Lock.FREE), *leave_waiting(session, record))
    write(session, record, status, operations)
    return Ticket(id=record.id, state=status.status, epoch=status.epoch)


def dispatched(was: St, *, lost: bool = False, probe: str = "") -> St:
    """The status in a new epoch, which voids every older ticket."""
    return _begin_epoch(was, probe=probe, dispatched_at=now(), redispatches=was.redispatches + lost)


def next_epoch(was: St, changes: Mapping[str, object]) -> St:
    """The status with `changes`, in a new epoch in which nothing has been tried yet."""
    return _begin_epoch(was, **{"redispatches": 0, "tries": 0, "service_faults": 0, **changes})


def _begin_epoch(was: St, **changes: object) -> St:
    """The status in a new epoch, in which the record does not wait unless `changes` say so."""
    waits = {"delay": 0, "handed_back": False, "waits_for": None, "probe": ""}
    return was.model_copy(update={"epoch": was.epoch + 1, "op": token(), **waits, **changes})


def lock_operations(
    session: Session, record: Job | Batch, lock: Lock, taken: FencedStatus | None = None, by: str = ""
) -> tuple[Operation, ...]:
    """Operations that check or set the lock; `taken`: the status of the attempt for which TAKE takes it."""
    path = lock_path(record)
    delete = Delete(path, role=Role.LOCK)
    match lock:
        case Lock.KEEP | Lock.CARRY:
            return (Check(path, _ANY, Role.LOCK),)
        case Lock.TAKE if taken is not None:
            return take_lock(record, taken, by)
        case Lock.MINE:
            return (delete,)
        case Lock.BREAK if session.exists(path) is not None:
            return (delete,)
        case _:
            return require_free(path)


def require_free(lock: str) -> tuple[Operation, ...]:
    """Operations that fail with Busy if an attempt holds the lock; they leave nothing behind."""
    return Create(lock, ephemeral=True, role=Role.LOCK), Delete(lock, role=Role.LOCK)


@dataclass(frozen=True)
class Kind(Generic[St]):
    """Type and path of the status, and path of the lock, of jobs or of batches."""

    status: type[St]
    status_path: Callable[[str], str]
    lock_path: Callable[[str], str]


JOBS = Kind(JobStatus, paths.job_status, paths.job_lock)
BATCHES = Kind(BatchStatus, paths.batch_status, paths.batch_lock)


def read_statuses(
    session: Session,
    names: Sequence[str],
    kind: Kind[St],
    on_damage: Callable[[Corrupt], None] = log_damage,
    written_ms: Callable[[ZnodeStat], int] = attrgetter("mtime"),
) -> Iterator[tuple[str, St, bool, int]]:
    """Name, status, whether it is locked, and when the status was written (ms)."""
    locks = session.exists_many([kind.lock_path(name) for name in names])
    locked = {name for name, lock in zip(names, locks, strict=True) if lock is not None}
    decode = partial(codec.decode, kind.status)
    for name, status, stat in read_each(session, names, kind.status_path, decode, on_damage):
        yield name, status, name in locked, written_ms(stat)
