"""Pending: the job is taken up, unless its collection is on hold or its payload cannot be used.

What fails here needs a new submission, so only what reading the payload itself shows is refused here.
"""

from pipeline.outcome import Done, StepFailed, Wait
from pipeline.records import Job, PayloadType
from pipeline.states import Event
from pipeline.steps.collection_limits import allowed
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import payload, read_manifest
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
        payload(configuration)
        return Done(event=Event.ACQUIRE)
    rules = allowed(context)
    files = _keep_manifest(job, context, rules.case_fold)
    rules.check_files(files)
    return Done(event=Event.ACQUIRE, message=f"the manifest lists {files:,} file{'s'[: files != 1]}")


def _keep_manifest(job: Job, context: StepContext, case_fold: bool) -> int:
    """Put the manifest into the working directory, checked; the number of its files.

    One that an earlier attempt left is used only if it has the declared digest. Without one, nothing tells
    whether the source still gives the same: it is read again, which costs one small request.
    """
    workspace = Workspace.of(job)
    if job.configuration.digest is not None:
        try:
            kept = workspace.manifest.read_bytes()
            return len(read_manifest(kept, job.configuration, case_fold=case_fold).rows)
        except (FileNotFoundError, StepFailed):
            pass  # not there, or not the declared one: what the source gives decides
    settings = context.settings
    data = context.fetcher.read(
        job.configuration.payload_url, settings.object_manifest_limit, context.attempt
    )
    manifest = read_manifest(data, job.configuration, case_fold=case_fold, most=settings.object_files)
    context.attempt.check()
    with full_is_transient("keeping the manifest"):
        workspace.publish(workspace.manifest, data)
    return len(manifest.rows)
