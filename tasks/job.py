"""A job's path: STEPS has the work of every state, and `tasks.run` runs it."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from typing import Any

from celery import current_task

from pipeline.file_system import host_lacks
from pipeline.outcome import Done, Mistake, StepFailed, Wait, system
from pipeline.profiles.profile import Profile, with_site_limits
from pipeline.records import Job, PayloadType, Ticket
from pipeline.states import JOB, Event, JobState
from pipeline.steps import download, estimate, notify, pending, process, provision, record
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import working_storage_faults
from tasks import needs
from tasks import run as runner
from tasks.carrying import Carry, carries, never
from tasks.logs import log
from tasks.mistakes import mistakes_as
from tasks.profiles import host_limit, profile_of
from tasks.progress import ReportingAttempt
from tasks.run import Locked, StateWork, hosts_given_up_after
from tasks.worker_context import WorkerContext
from zkstate import jobs
from zkstate.errors import Outdated, TooBig
from zkstate.hosts import FleetHostLimiter
from zkstate.job_record import ZooKeeperJobRecord
from zkstate.jobs import JobMove
from zkstate.record import Lock

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


def run(context: WorkerContext, ticket: Ticket) -> Ticket | None:
    """Do the work of the ticket's state; the next state's ticket, or None if there is nothing to chain."""
    following = runner.run(context, ticket, _work_of(ticket.state, never))
    return following if isinstance(following, Ticket) else None


def run_onward(context: WorkerContext, ticket: Ticket) -> tuple[Ticket | None, int]:
    """`run`, and the states after it as long as this process may begin them; their number is second."""
    following = runner.run(context, ticket, _work_of(ticket.state, carries))
    states = 0
    while isinstance(following, Locked):
        states += 1
        work = _work_of(following.record.status.status, carries)
        following = runner.run_carried(following, work)
    return following, states


def _work_of(state: str, carry: Carry) -> StateWork[Job]:
    fetches = any(JOB.facts[working].fetches for working in JOB.working() if working == state)
    begin = partial(_begin, carry)
    load = jobs.load_to_begin if state == JobState.PENDING else jobs.load
    return StateWork(load, partial(_work, carry), _fail, needs.of_job, begin, fetches)


def _profile(locked: Locked[Job]) -> Profile:
    """With the secrets that the profile's file has now: they are not part of the record."""
    job, context = locked.record, locked.context
    profiles, name = context.clients().profiles, job.configuration.profile_name
    return with_site_limits(profile_of(locked.session, profiles, job.bid, name), context.settings)


def _begin(carry: Carry, locked: Locked[Job]) -> Job | None:
    """The work of a pending job is to look at the record, unless a manifest has to be fetched."""
    job = locked.record
    fetches = job.configuration.payload_type is PayloadType.OBJECT_MANIFEST
    if fetches or job.status.status is not JobState.PENDING:
        return None
    step_context, _, _ = _step_context(locked)
    try:
        outcome = _step(job, step_context)
        if isinstance(outcome, Wait) or outcome.event is not Event.ACQUIRE:
            return None
        request = JobMove(outcome.event, locked.context.name, done=outcome, lock=Lock.TAKE)
        if not carry(locked, jobs.target_of(job, request)):
            return None
        return jobs.move(locked.session, job, request)
    except (StepFailed, TooBig) as failure:
        log().debug("job not begun", reason=str(failure))  # the same happens again, under the lock
        return None


def _step_context(locked: Locked[Job]) -> tuple[StepContext, ZooKeeperJobRecord, FleetHostLimiter]:
    job, session, context = locked.record, locked.session, locked.context
    clients, profile = context.clients(), cache(partial(_profile, locked))
    limiter = FleetHostLimiter(
        session,
        partial(host_limit, context.settings.host_limit, profile),
        job.jid,
        give_up_after=hosts_given_up_after(job, context.settings),
    )
    attempt = ReportingAttempt(locked.guard, context.progress(), job.jid)
    own = ZooKeeperJobRecord(session, locked.guard)
    return clients.step_context(own, attempt, limiter, profile), own, limiter


def _work(carry: Carry, locked: Locked[Job]) -> Job | None:
    job, session, context = locked.record, locked.session, locked.context
    step_context, own, limiter = _step_context(locked)
    while True:
        with closing(limiter):
            outcome = _step(job, step_context)
        if isinstance(outcome, Wait):
            locked.hand_back(outcome.reason)
            return None
        locked.guard.check()
        request = JobMove(outcome.event, context.name, done=outcome)
        carried = carry(locked, jobs.target_of(job, request))
        try:
            if carried:
                request = replace(request, lock=Lock.CARRY)
            moved = jobs.move(session, own.with_changes(job), request)
        except Outdated:
            continue  # another job reserved space in between: provisioning counts again
        locked.carried = carried
        return moved


def _step(job: Job, step_context: StepContext) -> Done | Wait:
    """A mistake in the code counts as a try; a damaged znode fails the job, until an operator repairs it."""
    settings = step_context.settings
    storage = working_storage_faults(settings), mount.losses(settings)
    with mistakes_as(Mistake, damaged=system), storage[0], storage[1], host_lacks():
        return STEPS[job.status.status](job, step_context)


def _fail(locked: Locked[Job], failure: StepFailed) -> Job:
    request = JobMove(Event.FAIL, locked.context.name, message=failure.message, kind=failure.kind)
    return jobs.move(locked.session, locked.record, request)


def register(context: WorkerContext) -> None:
    for state in STEPS:
        context.add_task(JOB.task(state).name, _task)


def _task(context: WorkerContext, ticket: dict[str, Any]) -> dict[str, Any] | None:
    following, carried = run_onward(context, Ticket.model_validate(ticket))
    request: Any = current_task.request
    if following is None:
        # not by Ignore: Flower would show the task as STARTED for ever
        request.chain = None
        return None
    if carried:
        del request.chain[-carried:]  # the next task is the last of the list
    return following.model_dump()
