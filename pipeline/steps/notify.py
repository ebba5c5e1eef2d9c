"""Notify: the depositor's own system is told that the job is complete, if the profile names one."""

from pipeline.outcome import Done
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.steps.context import Services
from pipeline.working_storage.workspace import Workspace, read_stored


def work(job: Job, services: Services) -> Done:
    profile = services.profile
    if profile.callback_url is None:
        return Done(message="no callback in the profile")
    number = _version_number(job, profile, services)
    services.alive()
    # what was said cannot be taken back
    services.ledger.fence(job)
    services.callback.tell(job, profile, number)
    return Done(message=f"told {profile.callback_url.host}")


def _version_number(job: Job, profile: Profile, services: Services) -> int | None:
    noted = read_stored(Workspace.of(job))
    if noted is not None and noted.jid == job.jid:
        return noted.number
    ark = job.identifiers.primary_id
    found = services.storage.version_of(ark, job.jid, profile.storage_node) if ark else None
    return found.number if found else None
