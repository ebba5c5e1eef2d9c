"""Pending: the job is acquired, unless its collection is on hold or its payload cannot be used.

A failure here needs a new submission: only faults of the payload itself are refused here.
"""

from pipeline.outcome import Done, StepFailed, Wait
from pipeline.records import Job, PayloadType
from pipeline.states import Event
from pipeline.steps.collection_limits import limits_of
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import payload_file, read_manifest
from pipeline.urls import check_url
from pipeline.working_storage.capacity import full_is_transient
from pipeline.working_storage.workspace import Workspace


def work(job: Job, context: StepContext) -> Done | Wait:
    configuration = job.configuration
    if context.job_record.collection_held(configuration.profile_name):
        return Done(
            event=Event.HOLD,
            message=f"collection {configuration.profile_name} is on hold; once the hold is lifted, "
            "an operator releases the job",
        )
    check_url(configuration.payload_url)
    if configuration.payload_type is not PayloadType.OBJECT_MANIFEST:
        payload_file(configuration)
        return Done(event=Event.ACQUIRE)
    limits = limits_of(context)
    files = _save_manifest(job, context, limits.case_fold)
    limits.check_files(files)
    return Done(event=Event.ACQUIRE, message=f"the manifest lists {files:,} file{'s'[: files != 1]}")


def _save_manifest(job: Job, context: StepContext, case_fold: bool) -> int:
    """Check the manifest and write it to the working directory; returns the number of its files.

    A manifest that an earlier attempt saved is used only if it has the declared digest. Without a declared
    digest the source may have changed: the manifest is read again, which costs one small request.
    """
    workspace = Workspace.of(job)
    if job.configuration.digest is not None:
        try:
            saved = workspace.manifest.read_bytes()
            return len(read_manifest(saved, job.configuration, case_fold=case_fold).rows)
        except (FileNotFoundError, StepFailed):
            pass  # absent, or not the declared file: the source is asked
    settings = context.settings
    data = context.fetcher.read(
        job.configuration.payload_url, settings.object_manifest_limit, context.attempt
    )
    manifest = read_manifest(data, job.configuration, case_fold=case_fold, most=settings.object_files)
    context.attempt.check()
    with full_is_transient("saving the manifest"):
        workspace.publish(workspace.manifest, data)
    return len(manifest.rows)
