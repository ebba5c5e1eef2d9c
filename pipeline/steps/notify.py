"""Notify: deliver the callback about the job's completion, if the profile has a callback URL."""

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.steps import earlier_version
from pipeline.steps.context import StepContext


def work(job: Job, context: StepContext) -> Done:
    profile = context.profile
    if profile.callback_url is None:
        return Done(message="the collection has no callback")
    version, _ = earlier_version.noted_or_stored(job, context)
    context.attempt.check()
    # a callback cannot be withdrawn
    context.job_record.fence(job)
    context.callback.deliver(job, profile, version.number if version else None, context.attempt)
    return Done(message=f"callback delivered to {profile.callback_url.host}")
