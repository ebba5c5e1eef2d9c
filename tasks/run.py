"""One runner for every ticket, of a job or of a batch: read, lock, work, move, and do what follows.

A ticket that is stale, duplicated or late finds the record elsewhere, and does nothing.

Rule: a process continues with its job, with the record and the lock in hand, if it consumes the messages of
the next state's queue anyway. The ticket goes through Redis where the worker is stopping or drained, where
a shared service is unavailable, and before a long state where a more urgent message waits. A job
that has to wait (for space, its next try, a host) is handed back by its step, as ever.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic

import redis
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
from pipeline.records import Job, Ticket, trace_id
from pipeline.states import JOB, JobState, Queue
from tasks.after_move import after_move
from tasks.broker import more_urgent
from tasks.logs import log
from tasks.meanings import Meaning, meaning_of
from tasks.outages import begin_outage, check_start, end_outage, is_own_fault
from tasks.retry import BACKOFF_LIMIT, delay_before_retry
from tasks.worker_context import WorkerContext
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Stale, TooBig
from zkstate.fleet import outages
from zkstate.fleet.outages import FIRST_PROBE, name_of
from zkstate.record import record
from zkstate.record.record import Lock, R

LONG = frozenset(state for state in JOB.working() if JOB.task(state).queue in (Queue.DOWNLOAD, Queue.PROCESS))
"""States whose work may take hours; the others end in less time than a look into Redis is worth."""


@dataclass
class Attempt(Generic[R]):
    """One attempt at a job or a batch in one state; `record` is as this attempt last read or wrote it."""

    context: WorkerContext
    session: Session
    guard: AttemptGuard
    record: R
    work: "StateWork[R]"
    lock: Lock = Lock.MINE
    """FREE: the attempt only reads before its only transaction, for which nobody may have the lock."""
    continues: bool = False
    """Whether this process may continue with the states after this one."""
    probed: Collection[str] = ()
    """The outages that are over if the work succeeds."""
    carried: bool = False
    """The work has moved the record, and this process holds the attempt at the next state too."""

    def carries(self, target: JobState) -> bool:
        """See the rule above; a job that goes back to an earlier state gets a ticket."""
        job, context = self.record, self.context
        if not (self.continues and isinstance(job, Job) and _is_next(job, target)):
            return False
        if not context.begins_next(JOB.task(target).queue) or outages.known(self.session):
            return False
        return target not in LONG or not _is_urgent_work_waiting(context, job)

    def hand_back(self, message: str, *, delay: float = 0, waits_for: WaitsFor | None = None) -> None:
        """Under the version that this attempt holds: a later owner's version is never used."""
        record.hand_back(
            self.session,
            self.record,
            self.context.name,
            message=message,
            delay=delay,
            waits_for=waits_for,
            lock=self.lock,
        )


@dataclass(frozen=True)
class StateWork(Generic[R]):
    """The work of one state."""

    load: Callable[[Session, str], R]
    do: Callable[[Attempt[R]], R | None]
    """The moved record; None if the record was handed back."""
    fail: Callable[[Attempt[R], StepFailed], R]
    """Move the record after a fault that is not tried again."""
    needs: Callable[[WorkerContext, R], Collection[str]] = lambda _context, _record: ()
    """The names of the outages during which the work is not started; asked only while there is one."""
    needs_lock: Callable[[R], bool] = lambda _record: True
    """False if the work has no effect but its one transaction."""
    fetches: bool = False
    """As in the facts of the state: a stopping worker waits less for it."""


def run(
    context: WorkerContext, ticket: Ticket, works: Mapping[str, StateWork[R]], *, scheduled: bool = False
) -> tuple[Ticket | None, int]:
    """Do the work of the ticket's state, and of the states after it that this process continues with.

    The next state's ticket, or None if there is nothing to chain; and the number of states carried on.
    `scheduled`: scheduled work asks, not a message; it may try a record that waits, and continues with none.
    """
    attempt = _begin(context, ticket, works, scheduled)
    carried = 0
    while attempt is not None:
        following = _work_on(attempt, works)
        if not isinstance(following, Attempt):
            return following, carried
        attempt, carried = following, carried + 1
    return None, carried


def _begin(
    context: WorkerContext, ticket: Ticket, works: Mapping[str, StateWork[R]], scheduled: bool
) -> Attempt[R] | None:
    with giving_up(context, ticket=ticket.model_dump()):
        session, work = context.session(), works.get(ticket.state)
        if work is None:
            raise Stale(f"no worker of this release works on {ticket.id} while {ticket.state[:100]}")
        # before the lock, to notice a session that is lost
        guard = AttemptGuard(session, partial(context.stopping, fetches=work.fetches))
        loaded = work.load(session, ticket.id)
        record.check_ticket(loaded, ticket)
        if loaded.status.handed_back and not scheduled:
            raise Stale(f"{loaded.id} waits: the sweep gives out a new ticket when the wait is over")
        probed = check_start(context, session, loaded, work.needs)
        if probed is None:
            return None
        if not work.needs_lock(loaded):
            return Attempt(context, session, guard, loaded, work, Lock.FREE, not scheduled, probed)
        acquired = record.acquire(session, loaded, ticket, context.name)
        guard.watch_lock(record.lock_path(acquired))
        return Attempt(context, session, guard, acquired, work, Lock.MINE, not scheduled, probed)
    return None


def _work_on(attempt: Attempt[R], works: Mapping[str, StateWork[R]]) -> Attempt[R] | Ticket | None:
    """The attempt at the next state, if this process continues; a ticket, if Celery's chain is to."""
    context, session, before = attempt.context, attempt.session, attempt.record
    ticket = record.ticket(before).model_dump()
    with structlog.contextvars.bound_contextvars(**_facts(attempt)), giving_up(context, ticket=ticket):
        moved = _tried(attempt)
        if moved is None:
            return None
        log().info("moved", to=str(moved.status.status), message=moved.status.message)
        if attempt.carried:
            work = works[moved.status.status]
            guard = attempt.guard.carried(partial(context.stopping, fetches=work.fetches))
            if attempt.lock is Lock.FREE:
                guard.watch_lock(record.lock_path(moved))
            return Attempt(context, session, guard, moved, work, continues=True)
        if isinstance(before, Job) and isinstance(moved, Job) and _is_next(before, moved.status.status):
            return record.ticket(moved)
        after_move(context.app, session, context.settings, moved)
    return None


def _is_next(job: Job, target: JobState) -> bool:
    """Celery's chain has the tasks of the following states in their order; back it does not lead."""
    order = JOB.working()
    return target in order and order.index(target) == order.index(job.status.status) + 1


def _is_urgent_work_waiting(context: WorkerContext, job: Job) -> bool:
    queues = {JOB.task(state).queue for state in JOB.working()}
    served = [queue for queue in queues if context.begins_next(queue)]
    try:
        return more_urgent(context.settings, served, job.status.priority)
    except redis.RedisError as error:
        log().debug("urgency not compared: Redis does not answer", error=str(error))
        return False  # no message could be sent either


def _facts(attempt: Attempt[R]) -> dict[str, object]:
    """What every line of the log has; a trace id only where traces are sent."""
    acquired = attempt.record
    status = acquired.status
    state = {"state": str(status.status), "attempt": status.attempt}
    if not isinstance(acquired, Job):
        return {"bid": acquired.id, **state}
    traced = attempt.context.settings.otlp_endpoint
    trace = {"trace_id": f"{trace_id(acquired):032x}"} if traced else {}
    return {"bid": acquired.bid, "jid": acquired.jid, **state, **trace}


def _tried(attempt: Attempt[R]) -> R | None:
    """The moved record; None if the record was handed back.

    The session is dropped with any exception: the attempt's lock must not stay with a living process.
    """
    try:
        try:
            with attempt.context.interruption().when_over(attempt.guard, partial(_release, attempt)):
                moved = attempt.work.do(attempt)
        except BaseException as error:  # noqa: BLE001 - raised where the request waits
            return _settle(attempt, error)
        if moved is not None:
            for name in attempt.probed:
                end_outage(attempt.session, name)
    except BaseException:
        if attempt.lock is Lock.MINE or attempt.carried:
            attempt.context.drop_session()
        raise
    return moved


def _release(attempt: Attempt[R], over: AttemptOver) -> None:
    """Give up a job whose step continues after its attempt, before its process ends."""
    with giving_up(attempt.context):
        if isinstance(over, Stopping):
            attempt.hand_back(str(over))
    attempt.context.drop_session()


def _settle(attempt: Attempt[R], error: BaseException) -> R | None:
    """Hand the record back or fail it, as the exception means; raise the exception if it means neither."""
    match meaning_of(error):
        case Meaning.STOPPING:
            attempt.hand_back(str(error) if isinstance(error, Stopping) else "the worker was stopped")
        case Meaning.LATER if isinstance(error, Later):
            waits_for = WaitsFor(kind=error.kind, name=error.name)
            attempt.hand_back(error.message, delay=error.wait, waits_for=waits_for)
        case Meaning.SERVICE_DOWN if isinstance(error, ServiceDown):
            return _wait_for_service(attempt, error)
        case Meaning.FAULT:
            return _retry_or_fail(attempt, _failure(error))
        case Meaning.DAMAGED:
            log().error("record unreadable", error=str(error))
            delay = BACKOFF_LIMIT
            attempt.hand_back(str(error), delay=delay, waits_for=WaitsFor(kind=WaitKind.REPAIR))
        case _:
            raise error
    if not isinstance(error, Exception):
        raise error  # the process must end
    return None


def _failure(error: BaseException) -> StepFailed:
    if isinstance(error, StepFailed):
        return error
    return content(str(error)) if isinstance(error, TooBig) else system(str(error))


def _wait_for_service(attempt: Attempt[R], fault: ServiceDown) -> R | None:
    """Hand the record back until the service works; a fault that only this record meets counts as a try."""
    stores = attempt.context.stores()
    stores.doubt()
    stores.log_once(fault)
    if fault.service is Service.RECORD:
        raise fault  # nothing may be written to a record that cannot be relied on
    if is_own_fault(attempt.session, attempt.record.status.service_faults, fault):
        return _retry_or_fail(attempt, transient(fault.message, fault.retry_after))
    begin_outage(attempt.session, fault)
    waits_for = WaitsFor(kind=WaitKind.SERVICE, name=name_of(fault))
    attempt.hand_back(fault.message, delay=FIRST_PROBE, waits_for=waits_for)
    return None


def _retry_or_fail(attempt: Attempt[R], failure: StepFailed) -> R | None:
    delay = delay_before_retry(failure, attempt.record.status.tries, attempt.context.settings)
    if delay is None:
        facts = {"detail": failure.detail} if failure.detail else {}
        log().warning("step failed", kind=str(failure.kind), message=failure.message, **facts)
        return attempt.work.fail(attempt, failure)
    attempt.hand_back(failure.message, delay=delay, waits_for=WaitsFor(kind=WaitKind.RETRY))
    log().warning("retry scheduled", message=failure.message, seconds=delay)
    return None


@contextmanager
def giving_up(context: WorkerContext, *, locks: bool = True, **facts: object) -> Iterator[None]:
    """Log the exception that ends this block, with `facts`; drop the session if the session is in doubt.

    `locks`: False if the block takes none, and others use the session after it.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the caller raises the exception
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
