"""Notify: the depositor's own system is told that the job is complete, if the profile names one."""

from pipeline.outcome import Done
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import Workspace, read_stored


def work(job: Job, context: StepContext) -> Done:
    profile = context.profile
    if profile.callback_url is None:
        return Done(message="no callback in the profile")
    number = _version_number(job, profile, context)
    context.alive()
    # what was said cannot be taken back
    context.job_record.fence(job)
    context.callback.tell(job, profile, number)
    return Done(message=f"told {profile.callback_url.host}")


def _version_number(job: Job, profile: Profile, context: StepContext) -> int | None:
    noted = read_stored(Workspace.of(job))
    if noted is not None and noted.jid == job.jid:
        return noted.number
    ark = job.identifiers.primary_id
    found = context.storage.version_of(ark, job.jid, profile.storage_node) if ark else None
    return found.number if found else None
