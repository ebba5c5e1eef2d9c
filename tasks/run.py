"""Runs the work of one state of a job or a batch: from a message to the move to the next state.

Celery calls `_task` with a ticket. `run` reads the record, checks that the ticket is for the state the record
is in, and takes the lock; then it does the work of the state and moves the record, in one transaction, or
hands it back. A stale, duplicate or late ticket finds another state or epoch, and has no effect.

STEPS has the work of each state of a job; the work on batches is in `tasks.batch`.

Rule: a process continues with its job, and keeps the record and the lock, if it consumes the messages of
the next state's queue anyway. The ticket goes through Redis if the worker is stopping or drained, if a shared
service is unavailable, or, before a long state, if a more urgent message waits. A job that has to wait (for
space, a retry, a host) is handed back by its step as usual.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic

import redis
import structlog
from celery import current_task
from celery.exceptions import Retry

from pipeline import causes
from pipeline.checking import journal
from pipeline.file_system import host_lacks
from pipeline.outcome import (
    AttemptOver,
    Done,
    Later,
    Mistake,
    Service,
    ServiceDown,
    StepFailed,
    Stopping,
    Wait,
    WaitKind,
    WaitsFor,
    content,
    system,
    transient,
)
from pipeline.profiles.profile import Profile, with_site_limits
from pipeline.records import Job, PayloadType, Ticket, trace_id
from pipeline.states import BATCH, JOB, Event, JobState, Queue, Task
from pipeline.steps import download, estimate, notify, pending, process, provision, record
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import working_storage_faults
from pipeline.working_storage.workspace import folder_of
from tasks.after_move import after_move
from tasks.broker import more_urgent, task_id
from tasks.logs import log
from tasks.outages import begin_outage, check_start, end_outage, is_own_fault
from tasks.redis_keys import ReportingAttempt
from tasks.retry import (
    BACKOFF_LIMIT,
    Meaning,
    delay_before_retry,
    giving_up,
    hosts_given_up_after,
    meaning_of,
    mistakes_as,
)
from tasks.state_task import StateFailed, StateTask, show
from tasks.worker_context import WorkerContext
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Outdated, Stale, TooBig
from zkstate.fleet import outages
from zkstate.fleet.hosts import FleetHostLimiter, host_limit
from zkstate.fleet.outages import FIRST_PROBE, name_of
from zkstate.fleet.places import place_of_check
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, jobs
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock, R, acquire, check_ticket, hand_back, lock_path, ticket

Step = Callable[[Job, StepContext], Done | Wait]

STEPS: dict[JobState, Step] = {
    JobState.PENDING: pending.work,
    JobState.ESTIMATING: estimate.work,
    JobState.PROVISIONING: provision.work,
    JobState.DOWNLOADING: download.work,
    JobState.PROCESSING: process.work,
    JobState.RECORDING: record.work,
    JobState.NOTIFY: notify.work,
}

LONG = frozenset(state for state in JOB.working() if JOB.task(state).queue in (Queue.DOWNLOAD, Queue.PROCESS))
"""States whose work may take hours; the others are too short for a query to Redis to pay off."""


@dataclass(frozen=True)
class StateWork(Generic[R]):
    """The work of one state."""

    load: Callable[[Session, str], R]
    do: Callable[["Attempt[R]"], R | None]
    """The moved record; None if the record was handed back."""
    fail: Callable[["Attempt[R]", StepFailed], R]
    """Move the record after a fault that is not retried."""


@dataclass
class Attempt(Generic[R]):
    """One attempt at a job or a batch in one state; `record` is as this attempt last read or wrote it."""

    context: WorkerContext
    session: Session
    guard: AttemptGuard
    record: R
    work: StateWork[R]
    lock: Lock = Lock.MINE
    """FREE: the attempt only reads before its only transaction, which requires that nobody holds the lock."""
    continues: bool = False
    """Whether this process may continue with the states after this one."""
    probed: Collection[str] = ()
    """The outages that end if the work succeeds."""
    carried: bool = False
    """The work has moved the record, and this process holds the attempt at the next state too."""
    cause: str = ""
    """Why the record was handed back, or the work failed."""

    def hand_back(self, message: str, *, delay: float = 0, waits_for: WaitsFor | None = None) -> None:
        """Hand back the record under the version of this attempt, never under that of a later owner."""
        self.cause = message
        hand_back(
            self.session,
            self.record,
            self.context.name,
            message=message,
            delay=delay,
            waits_for=waits_for,
            lock=self.lock,
        )


@dataclass(frozen=True)
class Ended(Generic[R]):
    """How the work of one state ended."""

    moved: R | None = None
    following: Ticket | None = None
    """The ticket of the next state, if Celery's chain leads there."""
    cause: str = ""
    """Why the work failed, or the record was not moved."""
    meaning: Meaning | None = None
    """The meaning of the exception that ended the work; None if the record was handed back."""


def register(context: WorkerContext, tasks: Iterable[Task], works: Mapping[str, StateWork[R]]) -> None:
    """Have Celery call `_task` for these tasks: those of jobs, or those of batches."""
    for task in dict.fromkeys(tasks):
        context.add_task(task.name, partial(_task, works), base=StateTask)


def _task(
    works: Mapping[str, StateWork[R]], context: WorkerContext, hint: dict[str, Any]
) -> dict[str, Any] | str | None:
    """The ticket that Celery passes to the next task of the chain; without one, the state of the record.

    None for a void hint. Raises StateFailed, or Celery's Retry if the record was handed back or is left to
    the sweep.
    """
    request: Any = current_task.request
    ended = run(context, Ticket.model_validate(hint), works, show=partial(show, context))
    if context.carried is not None or ended.following is None:
        request.chain = None  # nothing is sent
    elif request.chain:
        request.chain[-1] = {**request.chain[-1], "options": {"task_id": task_id(ended.following)}}
    if ended.cause and (ended.moved is not None or ended.meaning is Meaning.SUPERSEDED):
        raise StateFailed(ended.cause)
    if ended.cause:
        raise Retry(ended.cause)
    if ended.moved is None:
        return None
    # Celery makes a text of every result: that of a ticket takes eight times as long
    return ticket(ended.moved).model_dump() if request.chain else str(ended.moved.status.status)


def run(
    context: WorkerContext,
    hint: Ticket,
    works: Mapping[str, StateWork[R]],
    *,
    scheduled: bool = False,
    show: Callable[[R], None] = lambda _: None,
) -> Ended[R]:
    """Do the work of the ticket's state; `context.carried` is the attempt at the next one, if it is begun.

    `scheduled`: scheduled work calls this instead of a message; it may try a record that waits, and does not
    continue with the next state. `show`: called with the record once it is read and locked.
    """
    attempt: Attempt[R] | None = context.carried
    context.carried = None
    if attempt is None or ticket(attempt.record) != hint:
        attempt = None
        with giving_up(context, ticket=hint.model_dump()) as void:
            attempt = _begin(context, hint, works, scheduled=scheduled)
        if attempt is None:
            cause = "" if void.meaning is Meaning.SUPERSEDED else void.reason or "a shared service is away"
            return Ended(cause=cause)
    known = ticket(attempt.record).model_dump()
    ended = Ended[R]()
    with structlog.contextvars.bound_contextvars(**_facts(attempt)), giving_up(context, ticket=known) as lost:
        show(attempt.record)
        moved = _work(attempt)
        if moved is None:
            return Ended(cause=attempt.cause)
        log().info("moved", to=str(moved.status.status), message=moved.status.message)
        ended = Ended(moved, cause=attempt.cause)
        if attempt.carried:
            context.carried = _carry(attempt, moved, works)
            ended = Ended(moved, ticket(moved))
        elif _is_next(attempt.record, moved.status.status):
            ended = Ended(moved, ticket(moved))
        else:
            after_move(context.app, attempt.session, context.settings, moved)
    return ended if ended.moved is not None else Ended(cause=lost.reason, meaning=lost.meaning)


def _begin(
    context: WorkerContext, hint: Ticket, works: Mapping[str, StateWork[R]], *, scheduled: bool
) -> Attempt[R] | None:
    """Read, check and lock the record; None if the record was handed back, to wait for a service."""
    session, work = context.session(), works.get(hint.state)
    if work is None:
        raise Stale(f"no worker of this release works on {hint.id} while {hint.state[:100]}")
    loaded = work.load(session, hint.id)
    check_ticket(loaded, hint)
    if loaded.status.handed_back and not scheduled:
        raise Stale(f"{loaded.id} waits: the sweep gives out a new ticket when the wait is over")
    probed = check_start(context, session, loaded)
    if probed is None:
        return None
    # before the lock, to notice the loss of the session
    guard = AttemptGuard(session, _stopping(context, loaded))
    attempt = Attempt(context, session, guard, loaded, work, Lock.FREE, not scheduled, probed)
    if not _only_reads(loaded):
        attempt.record, attempt.lock = acquire(session, loaded, hint, context.name), Lock.MINE
        guard.watch_lock(lock_path(loaded))
    return attempt


def _stopping(context: WorkerContext, loaded: R) -> Callable[[], bool]:
    """Whether an attempt in this state has to end because the worker stops."""
    status = loaded.status.status
    facts = JOB.facts[status] if isinstance(loaded, Job) else BATCH.facts[status]
    return partial(context.stopping, fetches=facts.fetches)


def _only_reads(loaded: R) -> bool:
    """Whether the work only reads the record: that of a pending job, unless a manifest has to be fetched."""
    if not isinstance(loaded, Job) or loaded.status.status is not JobState.PENDING:
        return False
    return loaded.configuration.payload_type is not PayloadType.OBJECT_MANIFEST


def _carry(attempt: Attempt[R], moved: R, works: Mapping[str, StateWork[R]]) -> Attempt[R]:
    """The attempt at the next state: it began with the move."""
    context = attempt.context
    guard = attempt.guard.carried(_stopping(context, moved))
    if attempt.lock is Lock.FREE:
        guard.watch_lock(lock_path(moved))
    return Attempt(context, attempt.session, guard, moved, works[moved.status.status], continues=True)


def _is_next(was: R, target: str) -> bool:
    """Whether Celery's chain leads to `target`: it has the later states in order, and never goes back."""
    return isinstance(was, Job) and JOB.after(was.status.status)[:1] == (target,)


def _facts(attempt: Attempt[R]) -> dict[str, object]:
    """Fields of every log line; a trace id only if traces are sent."""
    acquired = attempt.record
    status = acquired.status
    state = {"state": str(status.status), "attempt": status.attempt}
    if not isinstance(acquired, Job):
        return {"bid": acquired.id, **state}
    trace = {"trace_id": f"{trace_id(acquired):032x}"} if attempt.context.traced else {}
    return {"bid": acquired.bid, "jid": acquired.jid, **state, **trace}


def _work(attempt: Attempt[R]) -> R | None:
    """The moved record; None if the record was handed back.

    Any exception drops the session: the attempt's lock must not stay with a living process.
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


def _do_step(attempt: Attempt[Job]) -> Job | None:
    """The step of the job's state, then the transaction that moves the job."""
    job, session, context = attempt.record, attempt.session, attempt.context
    own = ZooKeeperJobRecord(session, attempt.guard)
    step_context, limiter = _step_context(attempt, own)
    while True:
        outcome = _step(job, step_context, limiter)
        if isinstance(outcome, Wait):
            attempt.hand_back(outcome.reason)
            return None
        attempt.guard.check()
        carried = _carries(attempt, jobs.target_of(job.status, outcome.event))
        if not carried and job.status.status is JobState.PROCESSING:
            with suppress(OSError, ValueError):  # a worker of 0.3.0 may take over
                journal.separate(folder_of(job, context.settings.working))
        lock = attempt.lock
        if carried:
            lock = Lock.TAKE if attempt.lock is Lock.FREE else Lock.CARRY
        request = JobMove(outcome.event, context.name, done=outcome, lock=lock)
        try:
            moved = jobs.move(session, own.with_changes(job), request)
        except Outdated:
            continue  # another job reserved space in between: provisioning counts again
        attempt.carried = carried
        return moved


def _step_context(attempt: Attempt[Job], own: ZooKeeperJobRecord) -> tuple[StepContext, FleetHostLimiter]:
    """The context of the step; the profile has the current secrets of its file."""
    job, session, context = attempt.record, attempt.session, attempt.context
    clients, settings = context.clients(), context.settings

    @cache
    def profile() -> Profile:
        named = batches.profile_of(session, clients.profiles, job.bid, job.configuration.profile_name)
        return with_site_limits(named, settings)

    limit = partial(host_limit, settings.host_limit, profile)
    give_up_after = hosts_given_up_after(job, settings)
    limiter = FleetHostLimiter(session, limit, job.jid, give_up_after=give_up_after)
    reporting = ReportingAttempt(attempt.guard, context.progress(), job.jid)
    place = partial(place_of_check, session, job.jid, attempt.guard)
    return clients.step_context(own, reporting, limiter, profile, place), limiter


def _step(job: Job, step_context: StepContext, limiter: FleetHostLimiter) -> Done | Wait:
    """A mistake in the code counts as a try; a damaged znode fails the job, until an operator repairs it."""
    settings = step_context.settings
    storage = working_storage_faults(settings), mount.losses(settings)
    with closing(limiter), mistakes_as(Mistake, damaged=system), storage[0], storage[1], host_lacks():
        return STEPS[job.status.status](job, step_context)


def _carries(attempt: Attempt[Job], target: JobState) -> bool:
    """Whether this process continues with `target` (see the module's rule); never with an earlier state."""
    job, context = attempt.record, attempt.context
    if not (attempt.continues and _is_next(job, target)):
        return False
    if not context.begins_next(JOB.task(target).queue) or outages.known(attempt.session):
        return False
    if target not in LONG:
        return True
    served = {task.queue for task in JOB.tasks() if context.begins_next(task.queue)}
    try:
        return not more_urgent(context.settings, served, job.status.priority)
    except redis.RedisError as error:
        log().debug("urgency not compared: Redis does not answer", error=str(error))
        return True  # no message could be sent either


def _fail_job(attempt: Attempt[Job], failure: StepFailed) -> Job:
    request = JobMove(
        Event.FAIL,
        attempt.context.name,
        message=failure.message,
        kind=failure.kind,
        cause=failure.cause or causes.OTHER(),
        lock=attempt.lock,
        done=Done(checks=failure.checks),
    )
    return jobs.move(attempt.session, attempt.record, request)


JOBS: dict[str, StateWork[Job]] = {
    state: StateWork(jobs.load_to_begin if state is JobState.PENDING else jobs.load, _do_step, _fail_job)
    for state in STEPS
}


def _release(attempt: Attempt[R], over: AttemptOver) -> None:
    """Hand back a record whose step continues after its attempt, before the process ends."""
    with giving_up(attempt.context):
        if isinstance(over, Stopping):
            attempt.hand_back(str(over))
    attempt.context.drop_session()


def _settle(attempt: Attempt[R], error: BaseException) -> R | None:
    """Hand back the record or fail it, by the meaning of the exception; raise it if it means neither."""
    match meaning_of(error):
        case Meaning.STOPPING:
            attempt.hand_back(str(error) if isinstance(error, Stopping) else "the worker was stopped")
        case Meaning.LATER if isinstance(error, Later):
            waits_for = WaitsFor(kind=error.kind, name=error.name)
            attempt.hand_back(error.message, delay=error.wait, waits_for=waits_for)
        case Meaning.SERVICE_DOWN if isinstance(error, ServiceDown):
            return _wait_for_service(attempt, error)
        case Meaning.FAULT if isinstance(error, StepFailed):
            return _retry_or_fail(attempt, error)
        case Meaning.FAULT:
            limit = causes.LIMIT_EXCEEDED(limit="of the record for one change")
            too_big = isinstance(error, TooBig)
            failure = content(str(error)).because(limit) if too_big else system(str(error))
            return _retry_or_fail(attempt, failure)
        case Meaning.DAMAGED:
            log().error("record unreadable", error=str(error))
            waits_for = WaitsFor(kind=WaitKind.REPAIR)
            attempt.hand_back(str(error), delay=BACKOFF_LIMIT, waits_for=waits_for)
        case _:
            raise error
    if not isinstance(error, Exception):
        raise error  # the process must end
    return None


def _wait_for_service(attempt: Attempt[R], fault: ServiceDown) -> R | None:
    """Hand the record back until the service works; a fault that only this record meets counts as a try."""
    stores = attempt.context.stores()
    stores.doubt()
    stores.log_once(fault)
    if fault.service is Service.RECORD:
        raise fault  # nothing may be written to a record that cannot be relied on
    if is_own_fault(attempt.session, attempt.record.status.service_faults, fault):
        return _retry_or_fail(attempt, transient(fault.message, fault.retry_after).because(fault.cause))
    begin_outage(attempt.session, fault)
    waits_for = WaitsFor(kind=WaitKind.SERVICE, name=name_of(fault))
    attempt.hand_back(fault.message, delay=FIRST_PROBE, waits_for=waits_for)
    return None


def _retry_or_fail(attempt: Attempt[R], failure: StepFailed) -> R | None:
    delay = delay_before_retry(failure, attempt.record.status.tries, attempt.context.settings)
    if delay is None:
        facts = {"detail": failure.detail} if failure.detail else {}
        log().warning("step failed", kind=str(failure.kind), message=failure.message, **facts)
        attempt.cause = failure.message
        return attempt.work.fail(attempt, failure)
    attempt.hand_back(failure.message, delay=delay, waits_for=WaitsFor(kind=WaitKind.RETRY))
    log().warning("retry scheduled", message=failure.message, seconds=delay)
    return None
