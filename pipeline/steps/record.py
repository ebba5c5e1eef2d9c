"""Recording: enter the stored version in the inventory; only then may a job be completed."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha512

from pipeline import causes
from pipeline.checks import Stage
from pipeline.description import anvl
from pipeline.description.metadata import as_stored
from pipeline.fixity import StoredVersion
from pipeline.http.urls import redact_url
from pipeline.humanize import counted
from pipeline.inventory import embargoes
from pipeline.inventory.base import Provenance, Recording
from pipeline.inventory.embargoes import UnreadEmbargo
from pipeline.manifests.storage_manifest import mime_type
from pipeline.names import PRODUCER
from pipeline.outcome import Deposited, Done, StepFailed, system
from pipeline.preservation.embargo import read_embargo
from pipeline.profiles.profile import Profile
from pipeline.records import Job, SubmissionMode, now
from pipeline.states import STEP_DONE, JobState
from pipeline.steps import checks, earlier_version
from pipeline.steps.context import StepContext
from pipeline.steps.system_files import ERC_PATH
from pipeline.working_storage.workspace import DownloadedFile, Workspace


def work(job: Job, context: StepContext) -> Done:
    profile = context.profile
    version, erc = _stored(job, context)
    checked = checks.after_storing(job, context, version, Stage.STORED)
    recording = replace(_recording(job, version, erc, profile, context), checks=checked.runs)
    context.attempt.check()
    context.inventory.record(recording)
    _read_embargo(version, context)
    added = [file.size for file in version.files if file.added]
    deposited = sum(file.path.startswith(PRODUCER) for file in version.files)
    own = len(version.files) - deposited
    lost = "" if recording.downloaded else "; the list of its downloaded files is lost"
    entered = (
        f"{version.ark} version {version.number}: {counted(deposited, 'deposited file')} and {own:,} of the "
        f"repository, {sum(added):,} new bytes"
    )
    return Done(
        message=entered + lost,
        description=as_stored(recording.erc),
        remark=job.status.with_remarks(*_remarks(job, version, context), *checked.judged.remarks),
        checks=checked.judged.summaries,
        deposited=Deposited(files=len(added), bytes=sum(added)),
    )


def _read_embargo(version: StoredVersion, context: StepContext) -> None:
    """Enter the embargo, which may be that of an earlier version; if it cannot be read now, it is later."""
    file = next((file for file in version.files if file.path == embargoes.PATH), None)
    if file is None:
        return
    unread = UnreadEmbargo(0, version.ark, version.number, version.url, file.size)
    with suppress(StepFailed):  # scheduled work reads it again, and says why it cannot
        read_embargo(context.inventory, context.storage, unread)


def _remarks(job: Job, version: StoredVersion, context: StepContext) -> tuple[str, ...]:
    """That the repository had the object already.

    A depositor who requested a new version need not check for one.
    """
    asked = job.configuration.new_version or job.configuration.submission_mode is not SubmissionMode.ADD
    if version.number == 1 or asked or version.ark in context.job_record.agreed_versions(job):
        return ()
    return (f"this is version {version.number} of {version.ark}, which the repository had already",)


def _stored(job: Job, context: StepContext) -> tuple[StoredVersion, bytes]:
    """The job's version, read back, and its ERC, if that is saved."""
    ark = job.identifiers.primary_id
    if ark is None:
        raise system(
            f"{job.jid} has no ARK although it was processed: fail the job and submit its object again"
        )
    version, erc = earlier_version.noted_or_stored(job, context)
    if version is None:
        raise system(
            f"storage has no version of {ark} from {job.jid}: compare the job's timeline with storage"
        ).because(causes.STORAGE_DAMAGED())
    if version.verified is None:
        context.storage.verify(version, context.attempt)
        version = replace(version, verified=now())
    return version, erc


def _recording(
    job: Job, version: StoredVersion, erc: bytes, profile: Profile, context: StepContext
) -> Recording:
    configuration = job.configuration
    downloaded = _arrived(job, version, context)
    return Recording(
        version=version,
        mime_types={file.path: mime_type(file.path) for file in version.files},
        owner=profile.owner,
        collections=profile.collections,
        local_id=job.identifiers.local_id,
        erc=_described(job, version, erc, context),
        object_type=profile.object_type,
        object_role=profile.object_role,
        aggregate_role=profile.aggregate_role,
        profile=profile.name,
        bid=job.bid,
        jid=job.jid,
        key=configuration.key,
        depositor=configuration.owner,
        submitter=configuration.submitter,
        payload_name=configuration.payload_name,
        ingest_type=configuration.submission_type.label,
        submitted=configuration.submitted_at,
        note=configuration.note,
        provenance={f"{PRODUCER}{file.path}": _provenance(file) for file in downloaded or ()},
        downloaded=None if downloaded is None else _downloaded_at(job, version),
    )


def _arrived(job: Job, version: StoredVersion, context: StepContext) -> tuple[DownloadedFile, ...] | None:
    """The list of downloaded files; None if it is lost or lists other content than was stored."""
    listed = Workspace.of(job, context.settings.working).downloaded_files()
    digests = {file.path: file.sha512 for file in version.files}
    if any(digests.get(f"{PRODUCER}{file.path}", file.sha512) != file.sha512 for file in listed or ()):
        return None
    return listed


def _provenance(file: DownloadedFile) -> Provenance:
    declared = None if file.declared_by is None else str(file.digest or "")
    return Provenance(file.sha512, declared, file.declared_by or "", file.container, redact_url(file.url))


def _downloaded_at(job: Job, version: StoredVersion) -> datetime:
    """When the job last completed the downloading step before the version was stored."""
    moves = zip((JobState.PENDING, *(entry.state for entry in job.history)), job.history, strict=False)
    left = [e.at for before, e in moves if before is JobState.DOWNLOADING and e.event in STEP_DONE]
    earlier = [at for at in left if at <= version.created]
    return max(earlier, default=min(left, default=job.configuration.submitted_at))


def _described(job: Job, version: StoredVersion, noted: bytes, context: StepContext) -> anvl.Pairs:
    """The kernel metadata as stored with the object, or as submitted if the object has none."""
    data = _stored_erc(version, noted, context)
    if data is not None:
        return anvl.kernel(anvl.parse(data, ERC_PATH))
    given = job.configuration
    places = (("where", place) for place in (version.ark, *job.identifiers.local_id))
    return anvl.kernel((("who", given.erc_who), ("what", given.erc_what), ("when", given.erc_when), *places))


def _stored_erc(version: StoredVersion, noted: bytes, context: StepContext) -> bytes | None:
    """The stored ERC; taken from working storage if it was saved there unchanged."""
    digest = next((file.sha512 for file in version.files if file.path == ERC_PATH), None)
    if digest is None:
        return None
    if sha512(noted).hexdigest() == digest:
        return noted
    return context.storage.read(version.ark, ERC_PATH, version.number, url=version.url)
