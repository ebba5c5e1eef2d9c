"""Live progress of downloads, as the workers report it; nothing is decided by it.

Redis' client is imported where it is asked, because a command that asks nothing should start fast.
"""

from operations.site import Site
from operations.visibility import visible_job
from pipeline.attempt import Progress
from pipeline.principal import Principal
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JobState

SHOWN = 3
"""Downloads of a batch that are shown at a time."""


def progress(site: Site, principal: Principal, jid: str) -> Progress | None:
    """None unless the job is downloading and its worker reported progress a moment ago."""
    job = visible_job(site, principal, jid)
    return progress_of(site.settings, jid, job.status.status) if isinstance(job, Job) else None


def progress_of(settings: Settings, jid: str, state: JobState) -> Progress | None:
    """None unless the job's worker reported progress a moment ago."""
    if state is not JobState.DOWNLOADING:
        return None
    from tasks.progress import read

    return read(settings, jid)
