"""A job's path: STEPS has the work of every state, and `tasks.run` runs it."""

from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from typing import Any

from celery import current_task

from pipeline.outcome import Done, Mistake, StepFailed, Wait, system
from pipeline.profiles.effective import with_site_limits
from pipeline.records import Job, Ticket
from pipeline.states import JOB, Event, JobState
from pipeline.steps import download, estimate, notify, pending, process, provision, record
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import working_storage_faults
from tasks import needs
from tasks import run as runner
from tasks.mistakes import mistakes_as
from tasks.profiles import host_limit, profile_of
from tasks.progress import ReportingAttempt
from tasks.run import Locked, StateWork
from tasks.worker_context import WorkerContext
from zkstate import jobs
from zkstate.errors import Outdated
from zkstate.hosts import FleetHostLimiter
from zkstate.job_record import ZooKeeperJobRecord
from zkstate.jobs import JobMove

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
    fetches = any(JOB.facts[state].fetches for state in JOB.working() if state == ticket.state)
    return runner.run(context, ticket, StateWork(jobs.load, _work, _fail, needs.of_job, fetches))


def _work(locked: Locked[Job]) -> Job | None:
    job, session, context = locked.record, locked.session, locked.context
    clients = context.clients()
    snapshot = partial(profile_of, session, clients.profiles, job.bid, job.configuration.profile_name)
    profile = cache(lambda: with_site_limits(snapshot(), context.settings))
    limiter = FleetHostLimiter(session, partial(host_limit, context.settings.host_limit, profile), job.jid)
    attempt = ReportingAttempt(locked.guard, context.progress(), job.jid)
    step_context = clients.step_context(ZooKeeperJobRecord(session, locked.guard), attempt, limiter, profile)
    while True:
        with closing(limiter):
            outcome = _step(job, step_context)
        if isinstance(outcome, Wait):
            locked.hand_back(outcome.reason)
            return None
        locked.guard.check()
        try:
            return jobs.move(session, job, JobMove(outcome.event, context.name, done=outcome))
        except Outdated:
            continue  # another job reserved space in between: provisioning counts again


def _step(job: Job, step_context: StepContext) -> Done | Wait:
    """A mistake in the code counts as a try; a damaged znode fails the job, until an operator repairs it."""
    settings = step_context.settings
    with mistakes_as(Mistake, damaged=system), working_storage_faults(settings), mount.losses(settings):
        return STEPS[job.status.status](job, step_context)


def _fail(locked: Locked[Job], failure: StepFailed) -> Job:
    request = JobMove(Event.FAIL, locked.context.name, message=failure.message, kind=failure.kind)
    return jobs.move(locked.session, locked.record, request)


def register(context: WorkerContext) -> None:
    for state in STEPS:
        context.add_task(JOB.task(state).name, _task)


def _task(context: WorkerContext, ticket: dict[str, Any]) -> dict[str, Any] | None:
    following = run(context, Ticket.model_validate(ticket))
    if following is None:
        # not by Ignore: Flower would show the task as STARTED for ever
        current_task.request.chain = None
        return None
    return following.model_dump()
