"""Which shared services the work of a state needs: while one is unavailable, the work is not started."""

from collections.abc import Collection

from pipeline.errors import UsageRefused
from pipeline.outcome import Service, StepFailed
from pipeline.profiles.profile import MinterName
from pipeline.records import Batch, Job
from pipeline.states import JOB, BatchState, JobState
from pipeline.upload_url import is_upload
from tasks.profiles import profile_of
from tasks.worker_context import WorkerContext
from zkstate.outage import outage_name

JOB_NEEDS: dict[JobState, frozenset[Service]] = {
    JobState.DOWNLOADING: frozenset({Service.WORKING_STORAGE}),
    JobState.PROCESSING: frozenset({Service.INVENTORY, Service.IDENTIFIERS, Service.STORAGE}),
    JobState.RECORDING: frozenset({Service.INVENTORY}),
    JobState.NOTIFY: frozenset({Service.CALLBACK}),
}
"""A state that is not listed needs none, or some only for some jobs: those wait once they met the fault.

Whatever reads content needs working storage besides.
"""

BATCH_NEEDS: dict[BatchState, frozenset[Service]] = {
    BatchState.REPORTING: frozenset({Service.MAIL, Service.INVENTORY}),
    BatchState.UPDATE_REPORTING: frozenset({Service.MAIL, Service.INVENTORY}),
}


def of_job(context: WorkerContext, job: Job) -> Collection[str]:
    """The names of the outages that keep the job from working in its state."""
    needs = JOB_NEEDS.get(job.status.status, frozenset())
    if JOB.facts[job.status.status].reads_content:
        needs |= {Service.WORKING_STORAGE}
    by_profile = {Service.IDENTIFIERS: _identifiers, Service.CALLBACK: _callback}
    names = [str(service) for service in needs if service not in by_profile]
    if job.status.status is JobState.DOWNLOADING and is_upload(job.configuration.payload_url):
        names.append(Service.UPLOADS)
    for service in needs & by_profile.keys():
        names += by_profile[service](context, job)
    return names


def of_batch(_: WorkerContext, batch: Batch) -> Collection[str]:
    return BATCH_NEEDS.get(batch.status.status, frozenset())


def _identifiers(context: WorkerContext, job: Job) -> list[str]:
    if not context.settings.ezid_url:
        return []
    try:
        profile = profile_of(context.session(), context.clients().profiles, job.bid, job.profile_name)
    except (StepFailed, UsageRefused):
        return []  # the step meets the same fault, and reports it
    return [] if profile.minter is MinterName.LOCAL else [Service.IDENTIFIERS]


def _callback(context: WorkerContext, job: Job) -> list[str]:
    try:
        profile = profile_of(context.session(), context.clients().profiles, job.bid, job.profile_name)
    except (StepFailed, UsageRefused):
        return []
    host = profile.callback_url.host if profile.callback_url else None
    return [outage_name(Service.CALLBACK, host)] if host else []
