"""One runner for every ticket, of a job or of a batch: read, lock, work, move, and do what follows.

A ticket that is stale, duplicated or late finds the record elsewhere, and does nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Generic

import structlog
from kombu.exceptions import OperationalError

from pipeline.errors import UsageRefused
from pipeline.outcome import AttemptOver, RateLimited, StepFailed, Stopping, system
from pipeline.records import Job, Ticket
from pipeline.states import JOB
from tasks.after_move import after_move
from tasks.logs import log
from tasks.retry_policy import delay_before_retry
from tasks.worker_context import WorkerContext
from zkstate import record
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Stale, Unreachable
from zkstate.locks import AttemptGuard
from zkstate.record import HandBack, R
from zkstate.session import Session


class Meaning(Enum):
    """The meaning of an exception for the work that it ends."""

    SUPERSEDED = "another attempt or an operator was first: the ticket is void"
    DISCONNECTED = "ZooKeeper's answer is missing: drop the session; the sweep continues"
    NO_BROKER = "Redis does not answer: nothing is sent; the sweep continues"
    STOPPING = "the worker stops: hand the record back"
    RATE_LIMITED = "a rate limit: hand the record back, with a delay"
    FAULT = "the work failed: try again later if the fault is transient, else fail"
    DAMAGED = "a znode is unreadable: hand the record back, with the longest delay"
    UNEXPECTED = "a mistake in the code: drop the session; the sweep tries again, less and less often"


MEANINGS: Mapping[type[BaseException], Meaning] = {
    Stale: Meaning.SUPERSEDED,
    Busy: Meaning.SUPERSEDED,
    Missing: Meaning.SUPERSEDED,
    AttemptOver: Meaning.SUPERSEDED,
    Unreachable: Meaning.DISCONNECTED,
    Ambiguous: Meaning.DISCONNECTED,
    OperationalError: Meaning.NO_BROKER,
    Stopping: Meaning.STOPPING,
    SystemExit: Meaning.STOPPING,
    KeyboardInterrupt: Meaning.STOPPING,
    RateLimited: Meaning.RATE_LIMITED,
    StepFailed: Meaning.FAULT,
    UsageRefused: Meaning.FAULT,
    Corrupt: Meaning.DAMAGED,
}


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of the most specific class in MEANINGS."""
    kinds = type(error).__mro__
    return next((MEANINGS[kind] for kind in kinds if kind in MEANINGS), Meaning.UNEXPECTED)


@dataclass
class Locked(Generic[R]):
    """One attempt's hold on a job or a batch; `record` is as this attempt last read or wrote it."""

    context: WorkerContext
    session: Session
    guard: AttemptGuard
    record: R

    def hand_back(self, message: str, *, delay: float = 0, why: HandBack = HandBack.UNFINISHED) -> None:
        """Under the version that this attempt holds: a later owner's version is never used."""
        record.hand_back(self.session, self.record, self.context.name, message=message, delay=delay, why=why)


@dataclass(frozen=True)
class StateWork(Generic[R]):
    """The work of one state."""

    acquire: Callable[[Session, Ticket, str], R]
    do: Callable[[Locked[R]], R | None]
    """The moved record; None if the record was handed back."""
    fail: Callable[[Locked[R], StepFailed], R]
    """Move the record after a fault that is not tried again."""


def run(context: WorkerContext, ticket: Ticket, work: StateWork[R]) -> Ticket | None:
    """Do the work of the ticket's state; the next ticket, if Celery's chain is to carry one on."""
    with giving_up(context, ticket=ticket.model_dump()):
        session = context.session()
        guard = AttemptGuard(session, context.stopping)  # before the lock, to notice a session that is lost
        locked = Locked(context, session, guard, work.acquire(session, ticket, context.name))
        guard.watch_lock(record.lock_path(locked.record))
        with structlog.contextvars.bound_contextvars(**_facts(locked.record)):
            moved = _attempt(locked, work)
            if moved is None:
                return None
            log().info("moved", to=str(moved.status.status), message=moved.status.message)
            if isinstance(moved, Job) and moved.status.status in JOB.working():
                return record.ticket(moved)
            after_move(context.app, session, context.settings, moved)
    return None


def _facts(acquired: R) -> dict[str, object]:
    status = acquired.status
    ids = {"bid": acquired.bid, "jid": acquired.jid} if isinstance(acquired, Job) else {"bid": acquired.id}
    return {**ids, "state": str(status.status), "attempt": status.attempt}


def _attempt(locked: Locked[R], work: StateWork[R]) -> R | None:
    with _dropping_session(locked.context):
        try:
            return work.do(locked)
        except BaseException as error:  # noqa: BLE001 - raised again unless the record is handed back
            return _settle(locked, work, error)


@contextmanager
def _dropping_session(context: WorkerContext) -> Iterator[None]:
    """Drop the session, and its locks, with any exception: a lock must not stay with a living process."""
    try:
        yield
    except BaseException:
        context.drop_session()
        raise


def _settle(locked: Locked[R], work: StateWork[R], error: BaseException) -> R | None:
    """Hand the record back or fail it, as the exception means; raise the exception if it means neither."""
    match meaning_of(error):
        case Meaning.STOPPING:
            locked.hand_back(str(error) if isinstance(error, Stopping) else "the worker was stopped")
        case Meaning.RATE_LIMITED if isinstance(error, RateLimited):
            locked.hand_back(error.message, delay=error.wait, why=HandBack.IN_LINE)
        case Meaning.FAULT:
            return _retry_or_fail(
                locked, work, error if isinstance(error, StepFailed) else system(str(error))
            )
        case Meaning.DAMAGED:
            log().error("record unreadable", error=str(error))
            locked.hand_back(str(error), delay=locked.context.settings.backoff_limit)
        case _:
            raise error
    if not isinstance(error, Exception):
        raise error  # the process must end
    return None


def _retry_or_fail(locked: Locked[R], work: StateWork[R], failure: StepFailed) -> R | None:
    delay = delay_before_retry(failure, locked.record.status.tries, locked.context.settings)
    if delay is None:
        log().warning("step failed", kind=str(failure.kind), message=failure.message)
        return work.fail(locked, failure)
    locked.hand_back(failure.message, delay=delay, why=HandBack.TRIED)
    log().warning("retry scheduled", message=failure.message, seconds=delay)
    return None


@contextmanager
def giving_up(context: WorkerContext, **facts: object) -> Iterator[None]:
    """Log the exception that ends this block, with `facts`; drop the session if the session is in doubt."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - every kind is logged, as MEANINGS says
        match meaning_of(error):
            case Meaning.SUPERSEDED:
                log().info("superseded", reason=str(error), **facts)
            case Meaning.DISCONNECTED:
                log().warning(
                    "attempt abandoned; the sweep redispatches the record", error=str(error), **facts
                )
                context.drop_session()
            case Meaning.NO_BROKER:
                log().warning(
                    "Redis does not answer; the sweep dispatches the record", error=str(error), **facts
                )
            case Meaning.DAMAGED:
                log().error("record unreadable", error=str(error), **facts)
            case _:
                log().exception("failed unexpectedly", **facts)
                context.drop_session()
