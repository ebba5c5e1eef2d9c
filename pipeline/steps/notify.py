"""Notify: deliver the callback that says that the job is complete, if the profile has a callback URL.

Before that, the checks that the profile asks for after recording.
"""

from dataclasses import replace

from pipeline.checking.running import NOTHING_FOUND, Judged
from pipeline.checks import Stage
from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.steps import checks, earlier_version
from pipeline.steps.context import StepContext


def work(job: Job, context: StepContext) -> Done:
    judged = _check(job, context)
    remark = job.status.with_remarks(*judged.remarks)
    return replace(_deliver(job, context), remark=remark, checks=judged.summaries)


def _check(job: Job, context: StepContext) -> Judged:
    if not any(rule.after is Stage.RECORDED for rule in context.profile.checks):
        return NOTHING_FOUND
    version, _ = earlier_version.noted_or_stored(job, context)
    if version is None:
        return NOTHING_FOUND
    checked = checks.after_storing(job, context, version, Stage.RECORDED)
    context.attempt.check()
    context.inventory.add_checks(version.ark, version.number, checked.runs)
    return checked.judged


def _deliver(job: Job, context: StepContext) -> Done:
    profile = context.profile
    if profile.callback_url is None:
        return Done(message="the collection has no callback")
    version, _ = earlier_version.noted_or_stored(job, context)
    context.attempt.check()
    # a callback cannot be withdrawn
    context.job_record.fence(job)
    context.callback.deliver(job, profile, version.number if version else None, context.attempt)
    return Done(message=f"callback delivered to {profile.callback_url.host}")
