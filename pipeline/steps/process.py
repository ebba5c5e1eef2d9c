"""Processing: the content gets its identifier and its description, and is stored.

Nothing is undone after a crash: the work is repeated with the same result. The ARK and the local ids are in
the record and in the inventory before anything is stored. The files that describe the object depend only on
the job and, for an update, on the previous version, which stays locked. Storage has one version per job: once
that exists, the content is not read again.

The ARK is the given one, that of a local id, or a new one. Two jobs with the same new local id become two
versions of one object: a job locks its local ids, looks them up, and unlocks them once the inventory has
reserved them for its ARK. The record's counter is not the only memory of minted names, because the record may
be restored from a backup: names known to inventory or storage are skipped, and a job known to one of them
keeps its ARK.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from pipeline import causes, names
from pipeline.checks import CheckRun
from pipeline.decoding.calls import Statements, read_statements
from pipeline.description import anvl, metadata, premis
from pipeline.fixity import ContentFile, StoredVersion
from pipeline.identifiers import minter
from pipeline.identifiers.minter import Assignment, Known, none_known
from pipeline.inventory.recording import Placement
from pipeline.manifests import storage_manifest
from pipeline.names import PRODUCER
from pipeline.outcome import Done, ServiceDown, StepFailed, caused_by, content, system
from pipeline.preservation.rebuild import require_as_sent
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, PayloadType, SubmissionMode, now
from pipeline.states import FailureKind
from pipeline.steps import checks, earlier_version
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import deposited
from pipeline.steps.system_files import ERC_PATH, compose_all
from pipeline.storage.base import StoreRequest
from pipeline.working_storage.capacity import full_waits
from pipeline.working_storage.mount import ContentGone
from pipeline.working_storage.workspace import DownloadedFile, Workspace, write_stored


class _NameTaken(Exception):
    """The minted ARK belongs to another job or object."""


@dataclass(frozen=True)
class Identity:
    ark: str
    identifiers: Identifiers
    new: bool
    """True if the ARK was minted for this job and no local id can already name the object."""
    recorded: int = 0
    """The last version of the object that the inventory has."""
    named: bool = False
    """The ARK was not minted now: the depositor named it, or a local id did."""


def identify(job: Job, profile: Profile, context: StepContext, local_id: tuple[str, ...]) -> Identity:
    """The job's ARK, written to the job's identifiers with all local ids, and reserved in the inventory.

    An attempt that ends early does no harm: the next one gets the same ARK, because a minted ARK is written
    in the transaction that takes its number. If another job has in between reserved the local ids for its own
    ARK, this job uses that ARK; its own number stays unused.
    """
    with ExitStack() as locks:
        # In sorted order, so that two jobs with several ids cannot deadlock.
        for name in sorted(local_id):
            locks.enter_context(context.job_record.exclusive("localid", f"{name}_{profile.owner}"))
        known = context.job_record.identifiers(job)
        named = context.inventory.arks_of(profile.owner, local_id)
        given = None if known.assigned else known.primary_id
        ark = minter.named_ark(given, named, lambda ark: context.inventory.placement_of(ark) is not None)
        if ark is None:
            return _mint_ark(job, profile, context, known, local_id)
        assigned = given is None
        placement = context.inventory.placement_of(ark)
        _check_ownership(ark, profile, placement, given=not assigned)
        naming = tuple(name for name in named if named[name] == ark) if assigned else ()
        check_consent(job, ark, context, naming, recorded=placement is not None)
        changes = {"primary_id": ark, "local_id": local_id, "assigned": assigned}
        identifiers = known.model_copy(update=changes)
        _write(job, context, known, identifiers)
        context.attempt.check()
        context.inventory.reserve_local_ids(profile.owner, ark, local_id)
        recorded = placement.version if placement else 0
        return Identity(ark, identifiers, new=False, recorded=recorded, named=True)


def recall(job: Job, context: StepContext) -> bool:
    """Whether the inventory has an ARK for this job; restores a lost ARK and its local ids to the record.

    StepFailed(system) if the inventory knows another job with this number.
    """
    ark = context.inventory.ark_of(job)
    known = context.job_record.identifiers(job)
    if ark is not None and known.primary_id is None:
        local_id = tuple(dict.fromkeys((*known.local_id, *context.inventory.local_ids_of(ark))))
        changes = {"primary_id": ark, "assigned": True, "local_id": local_id}
        _write(job, context, known, known.model_copy(update=changes))
    return ark is not None


@caused_by(causes.VERSION_REFUSED())
def check_consent(
    job: Job, ark: str, context: StepContext, naming: Sequence[str] = (), *, recorded: bool = False
) -> None:
    """StepFailed(content) if the job would add a version to an object without being allowed to.

    `naming`: the local ids that name the object, for the message.

    A version that this job itself stored does not count. Checked before the job's local ids are reserved for
    the object, and again under the lock of its storage, since another job may have created the object.
    """
    profile, storage = context.profile, context.storage
    if minter.may_add_version(job.configuration, profile):
        return
    node = profile.storage_node
    if not recorded and not storage.has_object(ark, node):
        return
    if storage.version_of(ark, job.jid, node, job.configuration.key) is not None:
        return
    placement = context.inventory.placement_of(ark)
    _check_ownership(ark, profile, placement, given=False)
    agreed = context.job_record.agreed_versions(job).get(ark)
    # the inventory may not have the last version yet
    numbers = [entry.number for entry in storage.versions_of(ark)] if agreed is not None else []
    current = max(placement.version if placement else 0, *numbers, 0)
    if problem := minter.consent_problem(ark, profile, placement, current, agreed, naming):
        raise content(problem)


@caused_by(causes.IDENTIFIER_REFUSED())
def _check_ownership(ark: str, profile: Profile, placement: Placement | None, *, given: bool) -> None:
    if problem := minter.ownership_problem(ark, profile, placement, given=given):
        raise content(problem)


def _mint_ark(
    job: Job, profile: Profile, context: StepContext, known: Identifiers, local_id: tuple[str, ...]
) -> Identity:
    """Mint a new ARK. The inventory reserves the local ids for it before it is registered anywhere, so that
    after a crash the next job with these local ids uses this ARK.
    """
    minter.check_reset(job.configuration, profile, local_id)
    # Written with the ARK, in one transaction, so that the ARK is never mistaken for a depositor's.
    assigned = known.model_copy(update={"local_id": local_id, "assigned": True})
    if known.primary_id is not None:
        _write(job, context, known, assigned)
    claim = partial(_claim, job, profile, context, local_id)
    names: Known = none_known  # the claim checks too; only a counter that is behind needs a search
    while True:
        context.attempt.check()
        try:
            ark = context.minter_of(profile).mint(job, profile, context.job_record, claim, names, assigned)
        except _NameTaken:
            names = context.inventory.known_arks
            taken = context.job_record.identifiers(job)
            _write(job, context, taken, taken.model_copy(update={"primary_id": None}))
        else:
            return Identity(ark, context.job_record.identifiers(job), new=not local_id)


def _claim(job: Job, profile: Profile, context: StepContext, local_id: tuple[str, ...], ark: str) -> None:
    """Claim the ARK; checks storage first, because a claim reserves local ids forever."""
    storage, node = context.storage, profile.storage_node
    stored = storage.has_object(ark, node)
    if stored and storage.version_of(ark, job.jid, node, job.configuration.key) is None:
        raise _NameTaken
    context.attempt.check()
    if not context.inventory.claim_ark(job, profile.owner, ark, local_id, unused=not stored):
        raise _NameTaken


def _write(job: Job, context: StepContext, known: Identifiers, identifiers: Identifiers) -> None:
    if known != identifiers:
        context.attempt.check()
        context.job_record.write_identifiers(job, identifiers)


@dataclass(frozen=True)
class _Content:
    """The submitted content, read and checked."""

    workspace: Workspace
    downloaded: tuple[DownloadedFile, ...]
    """The downloaded files, with the digests that the content itself declares."""
    files: tuple[ContentFile, ...]
    """The depositor's files in the object."""
    statements: Statements
    local_id: tuple[str, ...]
    runs: tuple[CheckRun, ...] = ()
    """What the checks of the profile found."""


def work(job: Job, context: StepContext) -> Done:
    known = recall(job, context)
    earlier = earlier_version.look(job, context) if known else earlier_version.find(job, context)
    if earlier is not None:
        return _keep(job, context, earlier)
    try:
        return _process(job, context)
    except ContentGone as gone:
        return earlier_version.without_content(job, context, gone, partial(_keep, job, context))


def _process(job: Job, context: StepContext) -> Done:
    submitted = _read_content(job, context)
    checked = checks.before_storing(job, context, submitted.downloaded)
    submitted = replace(submitted, runs=checked.runs)
    identity = identify(job, context.profile, context, submitted.local_id)
    job = job.model_copy(update={"identifiers": identity.identifiers})
    try:
        done = _store_once(job, context, submitted, identity)
    except ServiceDown:
        raise
    except StepFailed:
        submitted.workspace.read_content()  # raises ContentGone if that is the cause
        raise
    remarks = (*submitted.statements.remarks, *checked.judged.remarks)
    return replace(done, remark=job.status.with_remarks(*remarks), checks=checked.judged.summaries)


def _read_content(job: Job, context: StepContext) -> _Content:
    workspace = Workspace.of(job, context.settings.working)
    downloaded = workspace.read_content()
    update = job.configuration.submission_mode is SubmissionMode.UPDATE
    statements = read_statements(
        context.decoder,
        workspace.producer,
        downloaded,
        context.attempt,
        container=job.configuration.payload_type is PayloadType.CONTAINER,
        folder=job.configuration.payload_type is PayloadType.OBJECT_MANIFEST and not update,
        update=update,
    )
    files = _producer_files(job, workspace, downloaded)
    if not files and not statements.deletions:
        message = f"{job.configuration.payload_name or 'the payload'} has no file to store"
        raise content(message).because(causes.NO_FILE())
    known = context.job_record.identifiers(job).local_id
    local_id = metadata.all_local_ids(known, statements.elements)
    with_digests = statements.with_digests(downloaded)
    if with_digests != downloaded:  # saved before storing: the next attempt reads no content
        context.attempt.check()
        with full_waits("noting the digests that the content declares"):
            workspace.write_downloaded(with_digests)
    return _Content(workspace, with_digests, files, statements, local_id)


def _store_once(job: Job, context: StepContext, submitted: _Content, identity: Identity) -> Done:
    """Store the job's version, unless an earlier attempt has stored it.

    Order: storage accepts the request, then the ARK is announced, then the version is stored. So no object
    is stored under an unknown ARK, and no ARK is announced for a request that storage refuses. A job that is
    already stored announces nothing, because a later version may have announced newer metadata.
    """
    with context.job_record.exclusive("storage", identity.ark):
        context.attempt.check()
        existing = earlier_version.stored(job, context, identity.ark)
        stored, erc = (existing, b"") if existing else _store(job, context, submitted, identity)
    if existing is None:
        return _note(job, context, stored, erc)
    if not earlier_version.is_of(job, existing):
        _check_ours(job, submitted.files, existing)
    return _keep(job, context, existing)


def _store(
    job: Job, context: StepContext, submitted: _Content, identity: Identity
) -> tuple[StoredVersion, bytes]:
    """Store the new version; returns the version and its ERC."""
    profile = context.profile
    if not identity.new:
        check_consent(job, identity.ark, context)
    request, erc = _compose_version(job, profile, context, submitted, identity)
    context.storage.check(request, context.attempt)
    earlier_version.note_node(job, context)
    fence = partial(_fence, job, context)
    assignment = _assignment(job, profile, context, identity)
    context.minter_of(profile).announce(identity.ark, profile, erc, assignment, fence)
    stored = context.storage.store(request, fence)
    return stored, next(file.data or b"" for file in request.files if file.path == ERC_PATH)


def _compose_version(
    job: Job, profile: Profile, context: StepContext, submitted: _Content, identity: Identity
) -> tuple[StoreRequest, anvl.Pairs]:
    """Compose the files that describe the object; returns the request to store the version, and its ERC."""
    previous = _previous(job, profile, context, identity.ark)
    described = metadata.describe(job, profile, identity.ark, submitted.statements.elements, previous)
    # the inventory may not have the first version yet
    later = identity.recorded > 0 or (
        identity.named and context.storage.has_object(identity.ark, profile.storage_node)
    )
    declared = {
        f"{PRODUCER}{file.path}": file.digest
        for file in submitted.downloaded
        if file.digest and not file.container
    }
    with full_waits("describing the object"):
        events = premis.pieces(
            job,
            identity.ark,
            submitted.files,
            submitted.statements.checks,
            described.local_id,
            declared,
            _names_read(submitted.downloaded),
            submitted.runs,
            later=later,
        )
        texts = {**{name: (text,) for name, text in described.files.items()}, premis.NAME: events}
        system_files = compose_all(job, submitted.workspace, texts, submitted.files, context.attempt)
    given = job.configuration
    request = StoreRequest(
        ark=identity.ark,
        jid=job.jid,
        key=given.key,
        mode=given.submission_mode,
        files=(*submitted.files, *system_files),
        delete=submitted.statements.deletions,
        new=identity.new,
        message=given.note or f"{given.submission_mode} of {given.payload_name or 'a payload'}",
        user=given.submitter,
        node=profile.storage_node,
        recorded=identity.recorded,
    )
    return request, described.erc


def _names_read(downloaded: tuple[DownloadedFile, ...]) -> str:
    """The names whose encoding the container does not declare, with their bytes, percent-encoded."""
    return "".join(
        f"{file.raw_name}, read as {file.name_encoding}: {file.path}\n"
        for file in downloaded
        if file.name_encoding
    )


def _assignment(job: Job, profile: Profile, context: StepContext, identity: Identity) -> Assignment | None:
    """The assignment of the ARK by arkline; None if the depositor gave the ARK."""
    if not identity.identifiers.assigned:
        return None

    def is_first() -> bool:
        erc = context.storage.read(identity.ark, f"system/{metadata.ERC}", node=profile.storage_node)
        return erc is None

    return Assignment(job, is_first)


def _keep(job: Job, context: StepContext, stored: StoredVersion) -> Done:
    """Keep a version that an earlier attempt stored, as it was sent and not by what arrived later."""
    require_as_sent(context.storage, stored)
    return _note(job, context, stored)


def _note(job: Job, context: StepContext, stored: StoredVersion, erc: bytes = b"") -> Done:
    """Read the version back, unless storing it has, and save the result in working storage."""
    if stored.verified is None:
        context.storage.verify(stored, context.attempt)
        stored = replace(stored, verified=now())
    context.attempt.check()
    with full_waits("recording what was stored"):
        write_stored(Workspace.of(job, context.settings.working), stored, erc)
    new = sum(file.added for file in stored.files)
    return Done(message=f"stored as version {stored.number} of {stored.ark}, {new:,} new files")


def _previous(job: Job, profile: Profile, context: StepContext, ark: str) -> metadata.Previous:
    """The description that an update starts from; read from storage, since it may not be recorded yet."""
    if job.configuration.submission_mode is not SubmissionMode.UPDATE:
        return metadata.NO_PREVIOUS

    def read(path: str) -> bytes | None:
        context.attempt.check()
        return context.storage.read(ark, path, node=profile.storage_node)

    return metadata.Previous(metadata.read_previous_elements(ark, read), context.inventory.local_ids_of(ark))


def _producer_files(
    job: Job, workspace: Workspace, downloaded: tuple[DownloadedFile, ...]
) -> tuple[ContentFile, ...]:
    return tuple(
        ContentFile(
            path=f"{PRODUCER}{file.path}",
            source=workspace.producer / file.path,
            size=file.size,
            sha512=file.sha512,
            mime_type=storage_manifest.mime_type(file.path),
        )
        for file in deposited(job, downloaded)
    )


def _fence(job: Job, context: StepContext) -> None:
    context.attempt.check()
    context.job_record.fence(job)


@caused_by(causes.NUMBER_REUSED(), FailureKind.SYSTEM)
def _check_ours(job: Job, files: tuple[ContentFile, ...], stored: StoredVersion) -> None:
    """StepFailed unless the version with the job's id has this job's content.

    For jobs and versions of releases before 0.2.1, which have no key, while job ids may be reused.
    """
    digests = {file.path: file.sha512 for file in stored.files}
    for file in files:
        if digests.get(file.path) != file.sha512:
            raise system(
                f"version {stored.number} of {stored.ark} belongs to {job.jid} but has a different "
                f"{names.quote_name(file.path)}: the counter of job ids was reset; set it beyond the last "
                "job in storage, then submit again"
            )
