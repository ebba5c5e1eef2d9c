"""What failed of a deposit, deposited again: a manifest of the failed objects alone.

Each object comes from the same address, once its content is corrected there, or from a corrected file. What
is stored already stays stored and is not sent again. Only failures of content are meant: for the others the
repository's staff acts, and resumes the jobs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from operations import uploads
from operations.archive import Archive, archived_jobs, load_batch
from operations.reports import load_jobs
from operations.submission import Submitted, submit
from pipeline.errors import UsageRefused
from pipeline.fixity import OF_RECORD, Digest
from pipeline.http.urls import redact_url
from pipeline.inventory.archive import ArchivedJob
from pipeline.inventory.sql import SqlInventory
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile, Row
from pipeline.principal import Principal
from pipeline.profiles.profile import Profiles
from pipeline.records import Batch, Job, PayloadType, Record, Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.upload_url import UploadAddress, is_upload
from pipeline.uploads.layout import UploadedFile
from zkstate.session import Session

MANIFEST = "again.checkm"
"""The manifest of the failed objects, in the upload."""

MOST = 1000
"""Objects that are deposited again at a time."""

_PROFILES = {
    PayloadType.FILE: ManifestProfile.FILE_BATCH,
    PayloadType.CONTAINER: ManifestProfile.CONTAINER_BATCH,
    PayloadType.OBJECT_MANIFEST: ManifestProfile.BATCH,
}


class FailedObject(Record):
    """An object that the depositor has to correct."""

    jid: str
    name: str
    title: str = ""
    address: str
    """As people may see it; empty if it was an upload, which has to be corrected here."""
    message: str = ""


class Renewed(Record):
    """An object of the preview."""

    name: str
    address: str
    corrected: bool
    """True if a corrected file was sent."""
    becomes: str = ""
    """`version 2 of ark:/99999/fk4abc`, if the repository has the object already."""


class Preview(Record):
    """What would be deposited; the manifest is in the principal's upload."""

    bid: str
    collection: str
    type: SubmissionType
    upload: str
    url: str
    objects: tuple[Renewed, ...]


@dataclass(frozen=True)
class Corrections:
    """What the depositor changed, by JID."""

    files: Mapping[str, UploadedFile]
    """The corrected file, in the upload of the preview."""
    addresses: Mapping[str, str]
    """Another address."""
    changed: frozenset[str] = frozenset()
    """Objects whose content was changed at the address: a digest that was declared does not hold any more."""


def failed_objects(session: Session, bid: str, archive: Archive) -> tuple[FailedObject, ...]:
    """The first MOST objects of the deposit whose content was refused."""
    return tuple(
        FailedObject(
            jid=job.jid,
            name=_name(job),
            title=job.configuration.erc_what,
            address=_shown(job.configuration.payload_url),
            message=_message(job),
        )
        for job in _failed(session, bid, archive)
    )


def prepare(  # noqa: PLR0913 - who corrects what, and where it is kept
    session: Session,
    settings: Settings,
    principal: Principal,
    archive: Archive,
    bid: str,
    upload: str,
    corrections: Corrections,
) -> Preview:
    """Write the manifest of the failed objects into the upload; nothing is deposited yet.

    UsageRefused if nothing failed by its content, or if an object has no address any more; ManifestError if
    an address is none.
    """
    failed = _failed(session, bid, archive)
    if not failed:
        raise UsageRefused(f"no object of {bid} failed by its content: there is nothing to correct")
    profile = _PROFILES[failed[0].configuration.payload_type]
    rows = [_row(job, upload, corrections) for job in failed]
    data = checkm.write(profile, rows)
    written = uploads.SiteUploader(session, settings, principal).put(upload, MANIFEST, (data,), len(data))
    inventory = archive()
    renewed = (
        Renewed(
            name=row.name,
            address=_shown(row.url),
            corrected=job.jid in corrections.files,
            becomes=_becomes(inventory, job, settings),
        )
        for job, row in zip(failed, rows, strict=True)
    )
    return Preview(
        bid=bid,
        collection=failed[0].configuration.profile_name,
        type=profile.submission_type,
        upload=upload,
        url=UploadAddress(upload, written.name).url,
        objects=tuple(renewed),
    )


def deposit(  # noqa: PLR0913 - the parts of a submission
    session: Session,
    settings: Settings,
    profiles: Profiles,
    principal: Principal,
    archive: Archive,
    bid: str,
    upload: str,
    kind: SubmissionType,
    *,
    new_version: bool,
) -> Submitted:
    """Deposit what the preview showed; a repeated call returns the same batch."""
    before = load_batch(session, bid, archive).submission
    again = Submission(
        profile_name=before.profile_name,
        submitter=before.submitter,
        response_type=before.response_type,
        submission_mode=before.submission_mode,
        new_version=new_version,
        dublin_core=before.dublin_core,
        notification=before.notification,
        priority=before.priority,
        note=f"objects of {bid} that failed, deposited again",
        payload_url=UploadAddress(upload, MANIFEST).url,
        payload_filename=f"again-{bid}.checkm",
        type=kind,
        idempotency_key=f"again-{bid}-{upload}",
    )
    return submit(session, settings, profiles, again, principal)


def _failed(session: Session, bid: str, archive: Archive) -> list[Job | ArchivedJob]:
    batch = load_batch(session, bid, archive)
    jobs: Iterable[Job | ArchivedJob]
    jobs = load_jobs(session, bid) if isinstance(batch, Batch) else archived_jobs(archive, bid)
    failed = (job for job in jobs if _state(job) == (JobState.FAILED, FailureKind.CONTENT))
    return list(islice(failed, MOST))


def _state(job: Job | ArchivedJob) -> tuple[JobState, FailureKind | None]:
    return (job.status.status, job.status.kind) if isinstance(job, Job) else (job.state, job.kind)


def _message(job: Job | ArchivedJob) -> str:
    return job.status.message if isinstance(job, Job) else job.message


def _name(job: Job | ArchivedJob) -> str:
    return job.configuration.name


def _shown(url: str) -> str:
    """As people may see it; nothing of an upload, whose address only the record needs."""
    return "" if is_upload(url) else redact_url(url)


def _row(job: Job | ArchivedJob, upload: str, corrections: Corrections) -> Row:
    given, identifiers = job.configuration, job.identifiers
    file, address = corrections.files.get(job.jid), corrections.addresses.get(job.jid, "")
    row = Row(
        line=0,
        url=address or given.payload_url,
        name=_name(job),
        digest=given.digest,
        size=given.size,
        primary_id=None if identifiers.assigned else identifiers.primary_id,
        local_id=identifiers.local_id,
        creator=given.erc_who,
        title=given.erc_what,
        date=given.erc_when,
    )
    return _corrected(row, job.jid, upload, file, fresh=bool(address) or job.jid in corrections.changed)


def _corrected(row: Row, jid: str, upload: str, file: UploadedFile | None, *, fresh: bool) -> Row:
    """The row of a corrected file has that file's digest; `fresh`: the digest of before does not hold."""
    if file is not None:
        return replace(
            row,
            url=UploadAddress(upload, file.name).url,
            name=file.name.rpartition("/")[2],
            digest=Digest(algorithm=OF_RECORD, value=file.sha512),
            size=file.size,
        )
    if is_upload(row.url):
        raise UsageRefused(f"{row.name} ({jid}) was a file of your computer: choose the corrected file")
    return replace(row, digest=None, size=None) if fresh else row


def _becomes(inventory: SqlInventory | None, job: Job | ArchivedJob, settings: Settings) -> str:
    """Which version of which object the deposit makes; empty for a new object."""
    if inventory is None:
        return ""
    owner = Profiles(settings.profiles).get(job.configuration.profile_name).owner
    named = inventory.arks_of(owner, job.identifiers.local_id) if job.identifiers.local_id else {}
    own = job.identifiers.primary_id
    for ark in dict.fromkeys((*named.values(), *((own,) if own else ()))):
        if (known := inventory.describe_object(ark)) is not None:
            return f"version {known.versions[-1].number + 1} of {ark}"
    return ""
