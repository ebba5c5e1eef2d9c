"""Recording: the stored version is entered in the inventory; before that no job may be called complete."""

from pipeline.formats import anvl
from pipeline.formats.metadata import ERC
from pipeline.formats.storage_manifest import mime_type
from pipeline.landing import Workspace, read_stored
from pipeline.outcome import Done, system
from pipeline.profile import Profile
from pipeline.records import Job
from pipeline.services import Services
from pipeline.services.inventory import Recording
from pipeline.services.storage import StoredVersion


def work(job: Job, services: Services) -> Done:
    profile = services.profile
    version = _stored(job, profile, services)
    recording = _recording(job, version, profile)
    services.alive()
    services.inventory.record(recording)
    brought = sum(file.size for file in version.files if file.added)
    return Done(
        message=f"{version.ark} version {version.number}: {len(version.files)} files, {brought} new bytes"
    )


def _stored(job: Job, profile: Profile, services: Services) -> StoredVersion:
    """What storage answered to this job; storage itself is asked if the note of it is lost."""
    ark = job.identifiers.primary_id
    if ark is None:
        raise system(f"{job.jid} has no ARK although it was processed: fail it and submit its object again")
    noted = read_stored(Workspace.of(job))
    if noted is not None and (noted.ark, noted.jid) == (ark, job.jid):
        return noted
    found = services.storage.version_of(ark, job.jid, profile.storage_node)
    if found is None:
        raise system(
            f"storage has no version of {ark} from {job.jid}: compare the job's timeline with storage"
        )
    return found


def _recording(job: Job, version: StoredVersion, profile: Profile) -> Recording:
    configuration = job.configuration
    return Recording(
        version=version,
        mime_types={file.path: mime_type(file.path) for file in version.files},
        owner=profile.owner,
        collections=profile.collections,
        local_id=job.identifiers.local_id,
        erc=_described(job, version.ark),
        object_type=profile.object_type,
        object_role=profile.object_role,
        aggregate_role=profile.aggregate_role,
        profile=profile.name,
        bid=job.bid,
        jid=job.jid,
        submitter=configuration.submitter,
        payload_name=configuration.payload_name,
        ingest_type=configuration.submission_type.value,
        submitted=configuration.submitted_at,
        note=configuration.note,
    )


def _described(job: Job, ark: str) -> anvl.Pairs:
    """The kernel metadata as stored with the object; as submitted if that file is gone."""
    name = f"system/{ERC}"
    try:
        pairs = anvl.parse((Workspace.of(job).system / ERC).read_bytes(), name)
    except FileNotFoundError:
        given = job.configuration
        places = (("where", each) for each in (ark, *job.identifiers.local_id))
        pairs = (("who", given.erc_who), ("what", given.erc_what), ("when", given.erc_when), *places)
    known = ((element.lower(), value) for element, value in pairs)
    return tuple((e, value) for e, value in known if e in anvl.ELEMENTS and value not in ("", anvl.UNKNOWN))
