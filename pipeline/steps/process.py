"""Processing: the job's content gets its identifier, its description, and its place in storage.

Nothing here is undone after a crash; all of it is done again and comes out the same. The ARK and the local
ids are in the record and in the inventory before anything is stored; the files that describe the object
depend on the job alone, and for an update on the version before it, which is held still meanwhile; storage
keeps one version per job.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipeline import names
from pipeline.containers import bag
from pipeline.containers import own_manifest as corroboration
from pipeline.containers.declared import UnpackedContainer
from pipeline.description import embargo, metadata, premis, storage_manifest
from pipeline.files import ContentFile, StoredVersion
from pipeline.identifiers.minter import Chosen
from pipeline.names import PRODUCER
from pipeline.outcome import Done, content, system
from pipeline.profiles.profile import Profile
from pipeline.records import Job, PayloadType, SubmissionMode, now
from pipeline.steps.context import StepContext
from pipeline.steps.identity import Identity, identify
from pipeline.storage.base import StoreRequest
from pipeline.working_storage.capacity import full_is_transient
from pipeline.working_storage.workspace import DownloadedFile, Workspace, write_stored

DELETIONS = "mrt-delete.txt"
"""A depositor's list of files that an update takes out, one path a line, relative to `producer/`."""

SUBMITTED_MANIFEST = "mrt-submission-manifest.txt"


def work(job: Job, context: StepContext) -> Done:
    workspace = Workspace.of(job)
    profile = context.profile
    landed = workspace.read_downloaded()
    delete = _deletions(job, workspace, landed)
    handed = _producer_files(job, workspace, landed)
    if not handed and not delete:
        raise content(f"{job.configuration.payload_name or 'the payload'} has no file to store")
    checks, landed = _checks(job, workspace, landed, context)
    said = metadata.told(workspace.producer)
    local_id = metadata.all_local_ids(context.job_record.identifiers(job).local_id, said)

    identity = identify(job, profile, context, local_id)
    known = job.model_copy(update={"identifiers": identity.identifiers})

    def is_first() -> bool:
        path = f"system/{metadata.ERC}"
        return context.storage.read(identity.ark, path, node=profile.storage_node) is None

    def make() -> StoredVersion:
        before = _before(job, profile, context, identity.ark)
        described = metadata.describe(known, profile, identity.ark, workspace.producer, before)
        with full_is_transient("describing the object"):
            declared = {f"{PRODUCER}{f.path}": f.digest for f in landed if f.digest and not f.container}
            events = premis.write(known, identity.ark, handed, checks, described.local_id, declared)
            texts = {**described.files, premis.NAME: events}
            files = (*handed, *_system_files(job, context, workspace, texts, handed))
        request = _request(job, profile, identity, files, delete)
        context.storage.check(request, context.attempt)
        chosen = Chosen(known, is_first) if known.identifiers.assigned else None
        context.minter.announce(identity.ark, profile, described.erc, chosen)
        return context.storage.store(request, lambda: _fence(job, context))

    stored = _stored(job, profile, context, identity.ark, make)
    _check_ours(job, handed, stored)
    context.storage.verify(stored, context.attempt)
    context.attempt.check()
    with full_is_transient("noting what was stored"):
        workspace.write_downloaded(landed)
        write_stored(workspace, replace(stored, verified=now()))
    new = sum(file.added for file in stored.files)
    return Done(message=f"stored as version {stored.number} of {stored.ark}, {new:,} files new")


def _checks(
    job: Job, workspace: Workspace, landed: tuple[DownloadedFile, ...], context: StepContext
) -> tuple[tuple[str, ...], tuple[DownloadedFile, ...]]:
    """What the content says of itself and was found to be true; StepFailed(content) if it is not.

    With it the files, and the digests that the content declares of them.
    """
    arrived = UnpackedContainer(workspace.producer, {file.path: file for file in landed}, context.attempt)
    found: list[str | None] = []
    if job.configuration.payload_type is PayloadType.CONTAINER:
        found += [corroboration.corroborate(arrived), *bag.check_bags(arrived)]
    if embargo.NAME in arrived.files:
        found.append(embargo.check(arrived.text(embargo.NAME)))
    return tuple(each for each in found if each), arrived.landed()


def _before(job: Job, profile: Profile, context: StepContext, ark: str) -> metadata.Before:
    """What an update starts from: read in storage, since the version before may not be recorded yet."""
    if job.configuration.submission_mode is not SubmissionMode.UPDATE:
        return metadata.NOTHING

    def read(path: str) -> bytes | None:
        context.attempt.check()
        return context.storage.read(ark, path, node=profile.storage_node)

    return metadata.Before(metadata.told_before(ark, read), context.inventory.local_ids_of(ark))


def _is_deletion_list(job: Job, path: str) -> bool:
    return job.configuration.submission_mode is SubmissionMode.UPDATE and path == DELETIONS


def _producer_files(
    job: Job, workspace: Workspace, landed: tuple[DownloadedFile, ...]
) -> tuple[ContentFile, ...]:
    return tuple(
        ContentFile(
            path=f"{PRODUCER}{file.path}",
            source=workspace.producer / file.path,
            size=file.size,
            sha512=file.sha512,
            mime_type=storage_manifest.mime_type(file.path),
        )
        for file in landed
        if not _is_deletion_list(job, file.path)
    )


def _deletions(job: Job, workspace: Workspace, landed: tuple[DownloadedFile, ...]) -> tuple[str, ...]:
    """Logical paths that the update takes out."""
    if not any(_is_deletion_list(job, file.path) for file in landed):
        return ()
    found: dict[str, None] = {}
    try:
        text = (workspace.producer / DELETIONS).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise content(f"producer/{DELETIONS} is not UTF-8: save it as UTF-8 and submit again") from error
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        try:
            found[f"producer/{names.safe_name(line)}"] = None
        except names.UnsafeName as error:
            raise content(f"producer/{DELETIONS} line {number}: {error}") from error
    return tuple(found)


def _system_files(
    job: Job,
    context: StepContext,
    workspace: Workspace,
    texts: dict[str, bytes],
    handed: tuple[ContentFile, ...],
) -> tuple[ContentFile, ...]:
    """Write our own files below `system/`; the manifest of all others comes last."""
    texts = texts | _text(SUBMITTED_MANIFEST, workspace.manifest)
    if job.configuration.submission_mode is SubmissionMode.UPDATE:
        texts |= _text(DELETIONS, workspace.producer / DELETIONS)
    files = tuple(_system_file(workspace, name, text) for name, text in texts.items())
    manifest = storage_manifest.write((*handed, *files))
    context.attempt.check()
    for name, text in (*texts.items(), (storage_manifest.NAME, manifest)):
        workspace.publish(workspace.system / name, text)
    return (*files, _system_file(workspace, storage_manifest.NAME, manifest))


def _text(name: str, source: Path) -> dict[str, bytes]:
    try:
        return {name: source.read_bytes()}
    except FileNotFoundError:
        return {}


def _system_file(workspace: Workspace, name: str, text: bytes) -> ContentFile:
    return ContentFile(
        path=f"system/{name}",
        source=workspace.system / name,
        size=len(text),
        sha512=hashlib.sha512(text).hexdigest(),
        mime_type=storage_manifest.mime_type(name),
    )


def _request(
    job: Job, profile: Profile, identity: Identity, files: tuple[ContentFile, ...], delete: tuple[str, ...]
) -> StoreRequest:
    given = job.configuration
    return StoreRequest(
        ark=identity.ark,
        jid=job.jid,
        mode=given.submission_mode,
        files=files,
        delete=delete,
        new=identity.new,
        message=given.note or f"{given.submission_mode} of {given.payload_name or 'a payload'}",
        user=given.submitter,
        node=profile.storage_node,
    )


def _stored(
    job: Job, profile: Profile, context: StepContext, ark: str, make: Callable[[], StoredVersion]
) -> StoredVersion:
    """The object's version. Its name is announced before, so that no object is kept under a name unknown,
    and after storage was asked whether it will take it, so that no name is told of what is refused.

    A job that was stored already announces nothing: a later version may have done so since.
    """
    with context.job_record.exclusive("storage", ark):
        _fence(job, context)
        return context.storage.version_of(ark, job.jid, profile.storage_node) or make()


def _fence(job: Job, context: StepContext) -> None:
    context.attempt.check()
    context.job_record.fence(job)


def _check_ours(job: Job, handed: tuple[ContentFile, ...], stored: StoredVersion) -> None:
    """A version that carries the job's id must be of this job's content, or the ids are being used again."""
    held = {file.path: file.sha512 for file in stored.files}
    for file in handed:
        if held.get(file.path) != file.sha512:
            raise system(
                f"version {stored.number} of {stored.ark} carries {job.jid} but holds another "
                f"{names.quote_name(file.path)}: the counter of job ids was reset; set it beyond "
                f"the last job "
                "in storage, then submit again"
            )
