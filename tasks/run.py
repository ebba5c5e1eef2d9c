"""One runner for every ticket, of a job or of a batch: read, lock, work, move, and do what follows.

A ticket that is stale, duplicated or late finds the record elsewhere, and does nothing.
"""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic

import structlog

from pipeline.outcome import (
    AttemptOver,
    Later,
    Service,
    ServiceDown,
    StepFailed,
    Stopping,
    WaitKind,
    WaitsFor,
    content,
    system,
    transient,
)
from pipeline.records import Batch, Job, Ticket, now, trace_id
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tasks.after_move import after_move
from tasks.logs import log
from tasks.meanings import Meaning, meaning_of
from tasks.outages import begin_outage, check_start, end_outage, is_own_fault
from tasks.worker_context import WorkerContext
from zkstate import record
from zkstate.errors import TooBig
from zkstate.locks import AttemptGuard
from zkstate.outage import FIRST_PROBE, name_of
from zkstate.record import R
from zkstate.session import Session

BACKOFF_LIMIT = 1800.0
"""Maximum seconds between two tries."""


@dataclass
class Locked(Generic[R]):
    """One attempt's hold on a job or a batch; `record` is as this attempt last read or wrote it."""

    context: WorkerContext
    session: Session
    guard: AttemptGuard
    record: R
    carried: bool = False
    """The work has moved the record, and this process holds the attempt at the next state too."""

    def hand_back(self, message: str, *, delay: float = 0, waits_for: WaitsFor | None = None) -> None:
        """Under the version that this attempt holds: a later owner's version is never used."""
        name = self.context.name
        record.hand_back(self.session, self.record, name, message=message, delay=delay, waits_for=waits_for)


@dataclass(frozen=True)
class StateWork(Generic[R]):
    """The work of one state."""

    load: Callable[[Session, str], R]
    do: Callable[[Locked[R]], R | None]
    """The moved record; None if the record was handed back."""
    fail: Callable[[Locked[R], StepFailed], R]
    """Move the record after a fault that is not tried again."""
    needs: Callable[[WorkerContext, R], Collection[str]] = lambda _context, _record: ()
    """The names of the outages during which the work is not started; asked only while there is one."""
    begin: Callable[[Locked[R]], R | None] = lambda _locked: None
    """Work without an effect, done before the lock is taken: one transaction takes it and moves the record.
    The moved record; None if the record is to be acquired first, and the work done then."""
    fetches: bool = False
    """As in the facts of the state: a stopping worker waits less for it."""


Next = Ticket | Locked[R] | None
"""A ticket, if Celery's chain is to carry one on; the record, if this process has begun its next state."""


def run(context: WorkerContext, ticket: Ticket, work: StateWork[R]) -> Next[R]:
    """Do the work of the ticket's state."""
    with giving_up(context, ticket=ticket.model_dump()):
        session = context.session()
        # before the lock, to notice a session that is lost
        guard = AttemptGuard(session, _stopping(context, work))
        loaded = work.load(session, ticket.id)
        probed = check_start(context, session, ticket, loaded, work.needs)
        if probed is None:
            return None
        locked = Locked(context, session, guard, loaded)
        begun = None if probed else _begin(locked, work, ticket)
        if begun is not None:
            return begun
        locked.record = record.acquire(session, loaded, ticket, context.name)
        guard.watch_lock(record.lock_path(locked.record))
        return _work_on(locked, work, probed)
    return None


def _begin(locked: Locked[R], work: StateWork[R], ticket: Ticket) -> Locked[R] | None:
    """The record in its next state; None if the work of this state needs the lock."""
    record.check_ticket(locked.record, ticket)
    with structlog.contextvars.bound_contextvars(**_facts(locked)):
        moved = work.begin(locked)
        if moved is None:
            return None
        locked.guard.watch_lock(record.lock_path(moved))
        log().info("moved", to=str(moved.status.status), message=moved.status.message)
    return Locked(locked.context, locked.session, locked.guard, moved)


def run_carried(locked: Locked[R], work: StateWork[R]) -> Next[R]:
    """Do the work of the state to which this process has just moved the record."""
    with giving_up(locked.context, ticket=record.ticket(locked.record).model_dump()):
        locked.guard = locked.guard.carried(_stopping(locked.context, work))
        return _work_on(locked, work, ())
    return None


def _stopping(context: WorkerContext, work: StateWork[R]) -> Callable[[], bool]:
    return partial(context.stopping, fetches=work.fetches)


def _work_on(locked: Locked[R], work: StateWork[R], probed: Collection[str]) -> Next[R]:
    context = locked.context
    with structlog.contextvars.bound_contextvars(**_facts(locked)):
        moved = _attempt(locked, work, probed)
        if moved is None:
            return None
        log().info("moved", to=str(moved.status.status), message=moved.status.message)
        if locked.carried:
            return Locked(context, locked.session, locked.guard, moved)
        if isinstance(moved, Job) and _continues_chain(locked.record, moved):
            return record.ticket(moved)
        after_move(context.app, locked.session, context.settings, moved)
    return None


def _continues_chain(before: Job | Batch, moved: Job) -> bool:
    """Celery's chain has the tasks of the following states in their order; back it does not lead."""
    order = JOB.working()
    state = moved.status.status
    return state in order and order.index(state) == order.index(JobState(before.status.status)) + 1


def _facts(locked: Locked[R]) -> dict[str, object]:
    """What every line of the log has; a trace id only where traces are sent."""
    acquired = locked.record
    status = acquired.status
    state = {"state": str(status.status), "attempt": status.attempt}
    if not isinstance(acquired, Job):
        return {"bid": acquired.id, **state}
    traced = locked.context.settings.otlp_endpoint
    trace = {"trace_id": f"{trace_id(acquired):032x}"} if traced else {}
    return {"bid": acquired.bid, "jid": acquired.jid, **state, **trace}


def _attempt(locked: Locked[R], work: StateWork[R], probed: Collection[str]) -> R | None:
    """The moved record; `probed`: the outages that are over if the work succeeds."""
    with _dropping_session(locked.context):
        try:
            with locked.context.interruption().when_over(locked.guard, partial(_release, locked)):
                moved = work.do(locked)
        except BaseException as error:  # noqa: BLE001 - raised again unless the record is handed back
            return _settle(locked, work, error)
        if moved is not None:
            for name in probed:
                end_outage(locked.session, name)
        return moved


def _release(locked: Locked[R], over: AttemptOver) -> None:
    """Give up a job whose step continues after its attempt, before its process ends."""
    with giving_up(locked.context):
        if isinstance(over, Stopping):
            locked.hand_back(str(over))
    locked.context.drop_session()


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
        case Meaning.LATER if isinstance(error, Later):
            waits_for = WaitsFor(kind=error.kind, name=error.name)
            locked.hand_back(error.message, delay=error.wait, waits_for=waits_for)
        case Meaning.SERVICE_DOWN if isinstance(error, ServiceDown):
            return _wait_for_service(locked, work, error)
        case Meaning.FAULT:
            return _retry_or_fail(locked, work, _failure(error))
        case Meaning.DAMAGED:
            log().error("record unreadable", error=str(error))
            delay = BACKOFF_LIMIT
            locked.hand_back(str(error), delay=delay, waits_for=WaitsFor(kind=WaitKind.REPAIR))
        case _:
            raise error
    if not isinstance(error, Exception):
        raise error  # the process must end
    return None


def _failure(error: BaseException) -> StepFailed:
    if isinstance(error, StepFailed):
        return error
    return content(str(error)) if isinstance(error, TooBig) else system(str(error))


def _wait_for_service(locked: Locked[R], work: StateWork[R], fault: ServiceDown) -> R | None:
    """Hand the record back until the service works; a fault that only this record meets counts as a try."""
    stores = locked.context.stores()
    stores.doubt()
    stores.log_once(fault)
    if fault.service is Service.RECORD:
        raise fault  # nothing may be written to a record that cannot be relied on
    if is_own_fault(locked.session, locked.record.status.service_faults, fault):
        return _retry_or_fail(locked, work, transient(fault.message, fault.retry_after))
    begin_outage(locked.session, fault)
    waits_for = WaitsFor(kind=WaitKind.SERVICE, name=name_of(fault))
    locked.hand_back(fault.message, delay=FIRST_PROBE, waits_for=waits_for)
    return None


def _retry_or_fail(locked: Locked[R], work: StateWork[R], failure: StepFailed) -> R | None:
    delay = delay_before_retry(failure, locked.record.status.tries, locked.context.settings)
    if delay is None:
        facts = {"detail": failure.detail} if failure.detail else {}
        log().warning("step failed", kind=str(failure.kind), message=failure.message, **facts)
        return work.fail(locked, failure)
    locked.hand_back(failure.message, delay=delay, waits_for=WaitsFor(kind=WaitKind.RETRY))
    log().warning("retry scheduled", message=failure.message, seconds=delay)
    return None


def delay_before_retry(failure: StepFailed, tries: int, settings: Settings) -> float | None:
    """Seconds until the next try, if `tries` tries failed before this one; None if there is no next try.

    At least the time that the other service asked for. ZooKeeper's clock measures the delay.
    """
    if not failure.is_tried_again or tries + 1 >= settings.max_tries:
        return None
    delay: float = min(settings.backoff * 2**tries, BACKOFF_LIMIT)
    return max(delay, failure.retry_after or 0)


def hosts_given_up_after(record: Job | Batch, settings: Settings) -> float:
    """Seconds after which the record gives up a host that answers nobody: as its own tries would last.

    Infinite while it has not been in its state as long: others' faults cost it nothing before.
    """
    tries = range(settings.max_tries - 1)
    lasting: float = sum(min(settings.backoff * 2**number, BACKOFF_LIMIT) for number in tries)
    waited = (now() - record.status.since).total_seconds()
    return lasting if waited >= lasting else math.inf


@contextmanager
def giving_up(context: WorkerContext, *, locks: bool = True, **facts: object) -> Iterator[None]:
    """Log the exception that ends this block, with `facts`; drop the session if the session is in doubt.

    `locks`: False if the block takes none, and others use the session after it.
    """
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
            case Meaning.SERVICE_DOWN if isinstance(error, ServiceDown):
                context.stores().log_once(error)
                context.drop_session()
            case Meaning.DAMAGED:
                log().error("record unreadable", error=str(error), **facts)
            case Meaning.STOPPING:
                log().info("stopped", reason=str(error), **facts)
            case _:
                log().exception("failed unexpectedly", **facts)
                if locks:
                    context.drop_session()
