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
from tasks.meanings import mistakes_as
from tasks.outages import needs_of_job
from tasks.profiles import host_limit, profile_of
from tasks.progress import ReportingAttempt
from tasks.retry import hosts_given_up_after
from tasks.run import Attempt, StateWork, run
from tasks.worker_context import WorkerContext
from zkstate.errors import Outdated
from zkstate.fleet.hosts import FleetHostLimiter
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import jobs
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

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


def _profile(attempt: Attempt[Job]) -> Profile:
    """With the secrets that the profile's file has now: they are not part of the record."""
    job, context = attempt.record, attempt.context
    profiles, name = context.clients().profiles, job.configuration.profile_name
    return with_site_limits(profile_of(attempt.session, profiles, job.bid, name), context.settings)


def _needs_lock(job: Job) -> bool:
    """The work of a pending job is to look at the record, unless a manifest has to be fetched."""
    return job.configuration.payload_type is PayloadType.OBJECT_MANIFEST


def _step_context(attempt: Attempt[Job]) -> tuple[StepContext, ZooKeeperJobRecord, FleetHostLimiter]:
    job, session, context = attempt.record, attempt.session, attempt.context
    clients, profile = context.clients(), cache(partial(_profile, attempt))
    limiter = FleetHostLimiter(
        session,
        partial(host_limit, context.settings.host_limit, profile),
        job.jid,
        give_up_after=hosts_given_up_after(job, context.settings),
    )
    reporting = ReportingAttempt(attempt.guard, context.progress(), job.jid)
    own = ZooKeeperJobRecord(session, attempt.guard)
    return clients.step_context(own, reporting, limiter, profile), own, limiter


def _work(attempt: Attempt[Job]) -> Job | None:
    job, session = attempt.record, attempt.session
    step_context, own, limiter = _step_context(attempt)
    while True:
        with closing(limiter):
            outcome = _step(job, step_context)
        if isinstance(outcome, Wait):
            attempt.hand_back(outcome.reason)
            return None
        attempt.guard.check()
        request = JobMove(outcome.event, attempt.context.name, done=outcome, lock=attempt.lock)
        carried = attempt.carries(jobs.target_of(job, request))
        if carried:
            request = replace(request, lock=Lock.TAKE if attempt.lock is Lock.FREE else Lock.CARRY)
        try:
            moved = jobs.move(session, own.with_changes(job), request)
        except Outdated:
            continue  # another job reserved space in between: provisioning counts again
        attempt.carried = carried
        return moved


def _step(job: Job, step_context: StepContext) -> Done | Wait:
    """A mistake in the code counts as a try; a damaged znode fails the job, until an operator repairs it."""
    settings = step_context.settings
    storage = working_storage_faults(settings), mount.losses(settings)
    with mistakes_as(Mistake, damaged=system), storage[0], storage[1], host_lacks():
        return STEPS[job.status.status](job, step_context)


def _fail(attempt: Attempt[Job], failure: StepFailed) -> Job:
    request = JobMove(
        Event.FAIL, attempt.context.name, message=failure.message, kind=failure.kind, lock=attempt.lock
    )
    return jobs.move(attempt.session, attempt.record, request)


def _work_of(state: JobState) -> StateWork[Job]:
    pending = state is JobState.PENDING
    return StateWork(
        jobs.load_to_begin if pending else jobs.load,
        _work,
        _fail,
        needs_of_job,
        needs_lock=_needs_lock if pending else lambda _job: True,
        fetches=JOB.facts[state].fetches,
    )


WORKS = {str(state): _work_of(state) for state in STEPS}


def register(context: WorkerContext) -> None:
    for state in STEPS:
        context.add_task(JOB.task(state).name, _task)


def _task(context: WorkerContext, ticket: dict[str, Any]) -> dict[str, Any] | None:
    following, carried = run(context, Ticket.model_validate(ticket), WORKS)
    request: Any = current_task.request
    if following is None:
        # not by Ignore: Flower would show the task as STARTED for ever
        request.chain = None
        return None
    if carried:
        del request.chain[-carried:]  # the next task is the last of the list
    return following.model_dump()
