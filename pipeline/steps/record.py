"""Recording: the stored version is entered in the inventory; before that no job may be called complete."""

from dataclasses import replace
from datetime import datetime
from hashlib import sha512

from pipeline.description import anvl
from pipeline.description.metadata import ERC
from pipeline.description.storage_manifest import mime_type
from pipeline.files import StoredVersion
from pipeline.inventory.base import Provenance, Recording
from pipeline.names import PRODUCER
from pipeline.outcome import Done, StepFailed, system
from pipeline.profiles.profile import Profile
from pipeline.records import Job, now
from pipeline.states import Event, JobState
from pipeline.steps.context import StepContext
from pipeline.urls import redact_url
from pipeline.working_storage.workspace import DownloadedFile, Workspace, read_stored

_ERC = f"system/{ERC}"


def work(job: Job, context: StepContext) -> Done:
    profile = context.profile
    version = _stored(job, profile, context)
    recording = _recording(job, version, profile, context)
    context.attempt.check()
    context.inventory.record(recording)
    brought = sum(file.size for file in version.files if file.added)
    lost = "" if recording.landed else "; how its files landed went with working storage"
    told = f"{version.ark} version {version.number}: {len(version.files)} files, {brought} new bytes"
    return Done(message=told + lost)


def _stored(job: Job, profile: Profile, context: StepContext) -> StoredVersion:
    """What storage answered to this job; storage itself is asked if the note of it is lost."""
    ark = job.identifiers.primary_id
    if ark is None:
        raise system(f"{job.jid} has no ARK although it was processed: fail it and submit its object again")
    noted = read_stored(Workspace.of(job))
    if noted is not None and (noted.ark, noted.jid) == (ark, job.jid):
        return noted
    found = context.storage.version_of(ark, job.jid, profile.storage_node)
    if found is None:
        raise system(
            f"storage has no version of {ark} from {job.jid}: compare the job's timeline with storage"
        )
    context.storage.verify(found, context.attempt)
    return replace(found, verified=now())


def _recording(job: Job, version: StoredVersion, profile: Profile, context: StepContext) -> Recording:
    configuration = job.configuration
    landed = _landed(job)
    return Recording(
        version=version,
        mime_types={file.path: mime_type(file.path) for file in version.files},
        owner=profile.owner,
        collections=profile.collections,
        local_id=job.identifiers.local_id,
        erc=_described(job, version, profile, context),
        object_type=profile.object_type,
        object_role=profile.object_role,
        aggregate_role=profile.aggregate_role,
        profile=profile.name,
        bid=job.bid,
        jid=job.jid,
        submitter=configuration.submitter,
        payload_name=configuration.payload_name,
        ingest_type=configuration.submission_type.label,
        submitted=configuration.submitted_at,
        note=configuration.note,
        arrivals={f"{PRODUCER}{file.path}": _arrival(file) for file in landed or ()},
        landed=None if landed is None else _landed_at(job),
    )


def _landed(job: Job) -> tuple[DownloadedFile, ...] | None:
    """What arrived; None if the list of it is gone or damaged: what is stored is recorded all the same."""
    workspace = Workspace.of(job)
    try:
        return workspace.read_downloaded() if workspace.landing.exists() else None
    except StepFailed:
        return None


def _arrival(file: DownloadedFile) -> Provenance:
    declared = None if file.declared_by is None else str(file.digest or "")
    return Provenance(file.sha512, declared, file.declared_by or "", file.container, redact_url(file.url))


def _landed_at(job: Job) -> datetime:
    """When the job last left downloading."""
    moves = zip((JobState.PENDING, *(entry.state for entry in job.history)), job.history, strict=False)
    left = (e.at for before, e in moves if before is JobState.DOWNLOADING and e.event is Event.SUCCEED)
    return max(left, default=job.configuration.submitted_at)


def _described(job: Job, version: StoredVersion, profile: Profile, context: StepContext) -> anvl.Pairs:
    """The kernel metadata as it is stored with the object; as submitted if it has none."""
    data = _stored_erc(job, version, profile, context)
    if data is not None:
        pairs = anvl.parse(data, _ERC)
    else:
        given = job.configuration
        places = (("where", each) for each in (version.ark, *job.identifiers.local_id))
        pairs = (("who", given.erc_who), ("what", given.erc_what), ("when", given.erc_when), *places)
    known = ((element.lower(), value) for element, value in pairs)
    return tuple((e, value) for e, value in known if e in anvl.ELEMENTS and value not in ("", anvl.UNKNOWN))


def _stored_erc(job: Job, version: StoredVersion, profile: Profile, context: StepContext) -> bytes | None:
    """The file in working storage if it is the one that was stored: a later attempt may have written it."""
    digest = next((file.sha512 for file in version.files if file.path == _ERC), None)
    if digest is None:
        return None
    try:
        data = (Workspace.of(job).system / ERC).read_bytes()
    except FileNotFoundError:
        data = b""
    if sha512(data).hexdigest() == digest:
        return data
    return context.storage.read(version.ark, _ERC, version.number, profile.storage_node)
