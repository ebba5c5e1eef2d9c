"""Notify: deliver the callback that says that the job is complete, if the profile has a callback URL."""

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.steps import earlier_version
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import Workspace, read_stored


def work(job: Job, context: StepContext) -> Done:
    profile = context.profile
    if profile.callback_url is None:
        return Done(message="the collection has no callback")
    number = _version_number(job, context)
    context.attempt.check()
    # a callback cannot be withdrawn
    context.job_record.fence(job)
    context.callback.deliver(job, profile, number, context.attempt)
    return Done(message=f"callback delivered to {profile.callback_url.host}")


def _version_number(job: Job, context: StepContext) -> int | None:
    stored = read_stored(Workspace.of(job, context.settings.working))
    if stored is not None and stored.jid == job.jid:
        return stored.number
    ark = job.identifiers.primary_id
    stored = earlier_version.stored(job, context, ark) if ark else None
    return stored.number if stored else None
