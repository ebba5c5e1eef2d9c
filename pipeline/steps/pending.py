"""Pending: acquire the job, unless its collection is on hold or its payload is unusable.

A failure here requires a new submission, so only faults of the payload itself are refused here.
"""

from pipeline.decoding.calls import manifest_reader
from pipeline.http.urls import check_url
from pipeline.humanize import counted
from pipeline.outcome import Done, StepFailed, Wait
from pipeline.records import Job, PayloadType
from pipeline.states import Event
from pipeline.steps import earlier_version
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import check_files, payload_file, read_manifest, save_manifest
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import Workspace


def work(job: Job, context: StepContext) -> Done | Wait:
    configuration = job.configuration
    if context.job_record.collection_held(configuration.profile_name):
        return Done(
            event=Event.HOLD,
            message=f"collection {configuration.profile_name} is on hold; once the hold is lifted, "
            "an operator releases the job",
        )
    earlier = earlier_version.find(job, context)
    if earlier is not None:
        return Done(event=Event.ACQUIRE, message=earlier_version.message(earlier))
    check_url(configuration.payload_url)
    if configuration.payload_type is not PayloadType.OBJECT_MANIFEST:
        payload_file(configuration)
        return Done(event=Event.ACQUIRE)
    mount.require(context.settings, context.job_record.working_storage)
    files = _saved_manifest(job, context) or save_manifest(job, context)
    check_files(context.profile, files)
    return Done(event=Event.ACQUIRE, message=f"the manifest lists {counted(files, 'file')}")


def _saved_manifest(job: Job, context: StepContext) -> int | None:
    """The number of files in the manifest that an earlier attempt saved; None if it has to be fetched.

    The manifest is used only if it has the declared digest. Without a declared digest the source may have
    changed, and the manifest is fetched again, which costs one small request.
    """
    if job.configuration.digest is None:
        return None
    case_fold = not context.profile.case_sensitive_names
    try:
        saved = Workspace.of(job, context.settings.working).manifest.read_bytes()
        parse = manifest_reader(context.decoder, context.attempt)
        return len(read_manifest(saved, job.configuration, case_fold=case_fold, parse=parse))
    except (FileNotFoundError, StepFailed):
        return None  # absent, or not the declared file
