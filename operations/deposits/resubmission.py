"""Resubmission of what failed in a deposit: a manifest of the failed objects alone.

Each object comes from the same address, once its content is corrected there, or from a corrected file. Stored
objects stay stored and are not sent again. Only content failures are included: for others the repository's
staff acts, and resumes the jobs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice

from operations.deposits import uploads
from operations.deposits.judgement import judge
from operations.deposits.planned import NamedObject
from operations.deposits.submission import Submitted, submit
from operations.jobs.batch_view import load_jobs
from operations.site import Site
from operations.visibility import archived_jobs, visible_batch
from pipeline.errors import UsageRefused
from pipeline.fixity import OF_RECORD, Digest
from pipeline.http.urls import redact_url
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile, Row
from pipeline.names import UploadAddress, is_upload
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job, PayloadType, Record, Submission, SubmissionType
from pipeline.states import FailureKind, JobState
from pipeline.uploads.stored import Declared, UploadedFile

MANIFEST = "again.checkm"
"""The name, in the upload, of the manifest of the failed objects."""

MOST = 1000
"""Maximum number of objects in one resubmission."""

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
    """The depositor's corrections, by JID."""

    files: Mapping[str, UploadedFile]
    """The corrected file, in the preview's upload."""
    addresses: Mapping[str, str]
    """A new address."""
    changed: frozenset[str] = frozenset()
    """Objects whose content was changed at the same address: a declared digest no longer applies."""


def correctable(site: Site, principal: Principal, bid: str) -> Batch | ArchivedBatch:
    """The deposit; Missing if the principal may not see it, Forbidden if it may not deposit there."""
    batch = visible_batch(site, principal, bid)
    principal.require(Role.DEPOSITOR, "deposit", batch.submission.profile_name)
    return batch


def failed_objects(site: Site, batch: Batch | ArchivedBatch) -> tuple[FailedObject, ...]:
    """The first MOST objects of the deposit whose content was refused."""
    return tuple(
        FailedObject(
            jid=job.jid,
            name=job.configuration.name,
            title=job.configuration.erc_what,
            address=_shown(job.configuration.payload_url),
            message=job.status.message if isinstance(job, Job) else job.message,
        )
        for job in _failed(site, batch)
    )


def prepare(site: Site, principal: Principal, bid: str, upload: str, corrections: Corrections) -> Preview:
    """Write the manifest of the failed objects to the upload; nothing is deposited yet.

    UsageRefused if no object failed because of its content, or if an object has no address any more;
    ManifestError for an invalid address.
    """
    batch = correctable(site, principal, bid)
    failed = _failed(site, batch)
    if not failed:
        raise UsageRefused(f"no object of {bid} failed by its content: there is nothing to correct")
    profile = _PROFILES[failed[0].configuration.payload_type]
    rows = [_row(job, upload, corrections) for job in failed]
    data = checkm.write(profile, rows)
    written = uploads.receive_file(site, principal, upload, Declared(name=MANIFEST), BytesIO(data))
    planned = [
        NamedObject(number=number, name=row.name, primary_id=row.primary_id, local_id=row.local_id)
        for number, row in enumerate(rows, 1)
    ]
    collection = site.profile(batch.submission.profile_name)
    judged = judge(site, collection, batch.submission, planned).objects
    renewed = (
        Renewed(
            name=row.name,
            address=_shown(row.url),
            corrected=job.jid in corrections.files,
            becomes=one.becomes if one.version_of else "",
        )
        for job, row, one in zip(failed, rows, judged, strict=True)
    )
    return Preview(
        bid=bid,
        collection=failed[0].configuration.profile_name,
        type=profile.submission_type,
        upload=upload,
        url=UploadAddress(upload, written.name).url,
        objects=tuple(renewed),
    )


def deposit(
    site: Site, principal: Principal, bid: str, upload: str, kind: SubmissionType, *, new_version: bool
) -> Submitted:
    """Deposit what the preview showed; calling it again returns the same batch."""
    before = correctable(site, principal, bid).submission
    again = Submission(
        profile_name=before.profile_name,
        deposit_name=before.deposit_name,
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
    return submit(site, principal, again)


def _failed(site: Site, batch: Batch | ArchivedBatch) -> list[Job | ArchivedJob]:
    jobs: Iterable[Job | ArchivedJob]
    jobs = load_jobs(site, batch.bid) if isinstance(batch, Batch) else archived_jobs(site, batch.bid)
    return list(islice(filter(_content_failed, jobs), MOST))


def _content_failed(job: Job | ArchivedJob) -> bool:
    state, kind = (job.status.status, job.status.kind) if isinstance(job, Job) else (job.state, job.kind)
    return (state, kind) == (JobState.FAILED, FailureKind.CONTENT)


def _shown(url: str) -> str:
    """The URL without secrets; empty for an upload, whose address only the record needs."""
    return "" if is_upload(url) else redact_url(url)


def _row(job: Job | ArchivedJob, upload: str, corrections: Corrections) -> Row:
    given, identifiers = job.configuration, job.identifiers
    file, address = corrections.files.get(job.jid), corrections.addresses.get(job.jid, "")
    row = Row(
        line=0,
        url=address or given.payload_url,
        name=job.configuration.name,
        digest=given.digest,
        size=given.size,
        primary_id=None if identifiers.assigned else identifiers.primary_id,
        local_id=identifiers.local_id,
        creator=given.erc_who,
        title=given.erc_what,
        date=given.erc_when,
    )
    if file is not None:
        return replace(
            row,
            url=UploadAddress(upload, file.name).url,
            name=file.name.rpartition("/")[2],
            digest=Digest(algorithm=OF_RECORD, value=file.sha512),
            size=file.size,
        )
    if is_upload(row.url):
        raise UsageRefused(f"{row.name} ({job.jid}) was a file of your computer: choose the corrected file")
    # a digest declared for other content does not apply
    return replace(row, digest=None, size=None) if address or job.jid in corrections.changed else row
