"""The version that an earlier attempt of a job stored, found by the job's key before content is read.

Rule: content that arrives after a version was stored proves nothing about the version, because the source may
have changed. Such a job is not downloaded again; its version is verified and recorded as it is. No server is
queried for a job that has never been named, processed or resumed, and has lost no worker in processing.
"""

from collections.abc import Callable
from itertools import takewhile

from pipeline import causes
from pipeline.fixity import StoredVersion
from pipeline.names import NotAnArk, spellings
from pipeline.outcome import Done, system
from pipeline.preservation import rebuild
from pipeline.records import HistoryEntry, Job
from pipeline.states import Event, JobState
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.mount import ContentGone
from pipeline.working_storage.workspace import Workspace, read_stored

DOWNLOADS_AGAIN = 3
"""Times that content missing from working storage is downloaded again without an operator."""


def find(job: Job, context: StepContext) -> StoredVersion | None:
    """The job's version; None if there is none, or if this is an ordinary first attempt."""
    return look(job, context) if _may_be_stored(job, context) else None


def look(job: Job, context: StepContext) -> StoredVersion | None:
    """The job's version as storage has it; None if there is none."""
    named = context.job_record.identifiers(job).primary_id or context.inventory.ark_of(job)
    for ark in _spellings(named):
        version = stored(job, context, ark)
        if version is not None and (is_of(job, version) or _describes(job, version, context)):
            return version
    return None


def noted_or_stored(job: Job, context: StepContext) -> tuple[StoredVersion | None, bytes]:
    """The job's version and its ERC, as saved in working storage; if that is lost, the version from storage,
    without the ERC. None if the job has no version.
    """
    ark = job.identifiers.primary_id
    noted, erc = read_stored(Workspace.of(job, context.settings.working))
    if noted is not None and (noted.ark, noted.jid) == (ark, job.jid):
        return noted, erc
    return (stored(job, context, ark) if ark else None), b""


def stored(job: Job, context: StepContext, ark: str) -> StoredVersion | None:
    """The version with the job's number, on the profile's storage node or a node where storing has begun."""
    nodes = (context.profile.storage_node, *(context.job_record.identifiers(job).nodes or ()))
    return rebuild.version_of(context.storage, ark, job.jid, job.configuration.key, nodes)


def note_node(job: Job, context: StepContext) -> None:
    """Record the node before storing, because a renewed profile may name another node later."""
    known = context.job_record.identifiers(job)
    node, before = context.storage.node_of(context.profile.storage_node), known.nodes or ()
    if node is not None and node not in before:
        context.attempt.check()
        noted = known.model_copy(update={"nodes": (*before, node)})
        context.job_record.write_identifiers(job, noted)


def is_of(job: Job, version: StoredVersion) -> bool:
    """Whether the version has the job's key, which is random and proves it."""
    return bool(version.key) and version.key == job.configuration.key


def _describes(job: Job, version: StoredVersion, context: StepContext) -> bool:
    return not job.configuration.key and rebuild.names_job(context.storage, version, job)


def message(version: StoredVersion) -> str:
    return f"nothing is fetched: the job has stored version {version.number} of {version.ark} before"


def pass_on(version: StoredVersion) -> Done:
    """The result of a step that has nothing to do because the version is stored."""
    return Done(message=message(version))


def without_content(
    job: Job, context: StepContext, gone: ContentGone, keep: Callable[[StoredVersion], Done] = pass_on
) -> Done:
    """The result of a step whose content is gone: `keep` the stored version, or download again."""
    mount.require(context.settings, context.job_record.working_storage)
    earlier = look(job, context)
    return _download_again(job, gone) if earlier is None else keep(earlier)


def _download_again(job: Job, gone: ContentGone) -> Done:
    """Return to an earlier step; StepFailed(system) after DOWNLOADS_AGAIN times without a resume."""
    events = [entry.event for entry in job.history if entry.event in (Event.DOWNLOAD_AGAIN, Event.RESUME)]
    again = len(list(takewhile(Event.DOWNLOAD_AGAIN.__eq__, reversed(events))))
    if again >= DOWNLOADS_AGAIN:
        raise system(
            f"the content was downloaded {again + 1} times and is gone again ({gone}): see who removes files "
            "from working storage, then resume the job"
        ).because(causes.CONTENT_LOST())
    return Done(event=Event.DOWNLOAD_AGAIN, message=f"the content is downloaded again: {gone}")


def _may_be_stored(job: Job, context: StepContext) -> bool:
    known = context.job_record.identifiers(job)
    named = known.assigned and known.primary_id is not None
    again = job.status.retry_count > 0 or any(map(_was_processed, job.history[:-1]))
    return (
        named
        or again
        or bool(known.nodes)
        or (job.status.status is JobState.PROCESSING and job.status.redispatches > 0)
    )


def _was_processed(entry: HistoryEntry) -> bool:
    """Whether the entry shows processing; assumed for entries that a repair replaced."""
    return entry.state is JobState.PROCESSING or entry.damaged is not None


def _spellings(named: str | None) -> tuple[str, ...]:
    try:
        return spellings(named) if named else ()
    except NotAnArk:
        return ()  # identification refuses it
