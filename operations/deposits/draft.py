"""Drafts: kept, listed, and deposited.

Rule: a deposit is recognized by its content. Its idempotency key is made of the collection, and of the names,
digests and descriptions of its objects, and belongs to the principal, so that two tabs, or a request whose
answer was lost, make one batch. A batch that failed or was deleted does not count: the same deposit then
makes another.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from itertools import islice
from typing import Any

from pydantic import Field

from operations.deposits import draft_preview, submission, uploads
from operations.deposits.draft_plan import DraftPlan, TableRow, plan_draft
from operations.deposits.draft_preview import PAGE, Judgement, Preview, PreviewTable
from operations.deposits.draft_table import read_table
from operations.deposits.local_deposit import FILES
from operations.deposits.validation import check_manifest_size
from operations.site import Site
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.fixity import OF_RECORD, Digest
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestError, Row
from pipeline.names import UploadAddress, is_upload, quote_name
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profile, with_site_limits
from pipeline.records import Batch, Record, Submission, SubmissionType
from pipeline.states import BatchState
from pipeline.uploads import draft, stored, writing
from pipeline.uploads.draft import Arrived, Draft, DraftFile, DraftRefused, Objects, SavedDraft
from pipeline.uploads.stored import Declared, UploadedFile
from zkstate.record import batches

DRAFTS = 100
"""Maximum drafts in the list of a principal's drafts, the latest first."""

ONE_OBJECT = (SubmissionType.FILE, SubmissionType.CONTAINER, SubmissionType.OBJECT_MANIFEST)

NAMED = 500
"""Maximum files or objects that a refused deposit names."""


class DraftView(Record):
    id: str
    draft: Draft | None = Field(None, description="null on later pages.")
    updated: datetime
    preview: Preview
    bid: str | None = Field(None, description="The batch that was made of the draft.")
    expires: datetime = Field(description="When it is removed, unless it changes before.")


class DraftRow(Record):
    """A draft of which no batch was made yet."""

    id: str
    name: str = ""
    profile: str | None = None
    objects: str | None = None
    files: int = 0
    bytes: int = 0
    arrived_files: int = 0
    arrived_bytes: int = 0
    updated: datetime | None = None
    expires: datetime
    problem: str | None = Field(None, description="Why the draft cannot be read.")


class DraftList(Record):
    drafts: tuple[DraftRow, ...] = ()
    left_off: int = Field(0, description=f"Further drafts: {DRAFTS} are listed, the latest first.")


class Deposited(Record):
    bid: str
    again: bool = Field(description="An earlier request deposited the same; nothing was added.")


def save(site: Site, principal: Principal, upload: str, given: Draft) -> Preview:
    """Keep the draft, and show its first page; DraftRefused once a batch was made of it."""
    root = site.settings.uploads_folder
    uploads.own_upload(site, principal, upload)
    _profile(site, principal, given)
    saved = SavedDraft(**dict(given))
    with draft.locked(root, upload):
        if bid := _batch_of(site, principal, draft.key_of(root, upload)):
            raise DraftRefused(
                f"batch {bid} was made of the draft of upload {upload}, which cannot be changed any more: "
                "begin another upload",
                code=codes.DRAFT_SUBMITTED,
            )
        held = site.quotas.of(principal.identity)
        with held.taking(size=max(0, len(saved.model_dump_json()) - draft.size(root, upload))):
            draft.write(root, upload, saved)
        arrived = Arrived(root, upload)
        changed = [
            file.name for file in given.files if arrived.size(FILES + file.name) not in (None, file.size)
        ]
        _drop(site, principal, upload, changed)
    return _preview(site, principal, upload, saved)


def show(
    site: Site, principal: Principal, upload: str, after: int, limit: int, *, errors_only: bool
) -> DraftView:
    uploads.own_upload(site, principal, upload)
    root = site.settings.uploads_folder
    saved = draft.read(root, upload)
    shown = _preview(site, principal, upload, saved, after, limit, errors_only=errors_only)
    return DraftView(
        id=upload,
        draft=None if after else saved,
        updated=saved.updated,
        preview=shown,
        bid=_batch_of(site, principal, saved.key),
        expires=_expires(site, upload),
    )


def unfinished(site: Site, principal: Principal) -> DraftList:
    """The principal's drafts of which no batch was made, the latest first."""
    uploads.require_depositor(principal)
    root = site.settings.uploads_folder
    held = stored.names_in(stored.owner_folder(root, principal.identity))
    with stored.faults(root):
        changed = {upload: moment for upload in held if (moment := draft.changed(root, upload))}
    rows: list[DraftRow] = []
    latest = sorted(changed, key=changed.__getitem__, reverse=True)
    for upload in islice(latest, DRAFTS):
        if (row := _row_of(site, principal, upload)) is not None:
            rows.append(row)
    return DraftList(drafts=tuple(rows), left_off=max(0, len(latest) - DRAFTS))


def _row_of(site: Site, principal: Principal, upload: str) -> DraftRow | None:
    root = site.settings.uploads_folder
    try:
        stored.load(root, upload, principal.identity)
        saved = draft.read(root, upload)
    except DraftRefused as refused:
        return DraftRow(id=upload, expires=_expires(site, upload), problem=str(refused))
    except UsageRefused:
        return None  # it was removed meanwhile
    if _batch_of(site, principal, saved.key):
        return None
    arrived = Arrived(root, upload)
    there = [size for file in saved.files if (size := arrived.size(FILES + file.name)) is not None]
    return DraftRow(
        id=upload,
        name=saved.name,
        profile=saved.profile,
        objects=saved.objects,
        files=len(saved.files),
        bytes=sum(file.size for file in saved.files),
        arrived_files=len(there),
        arrived_bytes=sum(there) + draft.partial_bytes(root, upload),
        updated=saved.updated,
        expires=_expires(site, upload),
    )


def _expires(site: Site, upload: str) -> datetime:
    """When the upload is removed, by the clock of the file system, which dated the files."""
    folder = stored.folder_of(site.settings.uploads_folder, upload)
    with stored.faults(site.settings.uploads_folder):
        changed = datetime.fromtimestamp(writing.last_written(folder), UTC)
    return changed + timedelta(days=site.settings.upload_days)


def _profile(site: Site, principal: Principal, given: Draft) -> Profile:
    principal.require(Role.DEPOSITOR, f"submit to collection {given.profile}", given.profile)
    return with_site_limits(site.profiles.get(given.profile), site.settings)


def _planned(
    site: Site, profile: Profile, upload: str, saved: SavedDraft
) -> tuple[DraftPlan, PreviewTable | None]:
    table, rows, problems = _table(site, upload, saved)
    plan = plan_draft(upload, saved, rows, case_fold=not profile.case_sensitive_names)
    plan.errors[:0] = problems
    return plan, table


def _preview(  # noqa: PLR0913 - a page of one draft
    site: Site,
    principal: Principal,
    upload: str,
    saved: SavedDraft,
    after: int = 0,
    limit: int = PAGE,
    *,
    errors_only: bool = False,
) -> Preview:
    profile = _profile(site, principal, saved)
    plan, table = _planned(site, profile, upload, saved)
    judged = draft_preview.judge(site, profile, plan, saved)
    arrived = Arrived(site.settings.uploads_folder, upload)
    return draft_preview.preview(plan, table, judged, arrived, after, limit, errors_only=errors_only)


def deposit(site: Site, principal: Principal, upload: str, *, again: bool = False) -> Deposited:
    """Deposit the draft; the same deposit sent twice is one batch, unless `again` says otherwise.

    DraftRefused names the files that are not there as declared, or the first errors of its objects.
    """
    root = site.settings.uploads_folder
    uploads.own_upload(site, principal, upload)
    with draft.locked(root, upload):
        saved = draft.read(root, upload)
        profile = _profile(site, principal, saved)
        plan, _ = _planned(site, profile, upload, saved)
        rows = _with_digests(upload, plan, _arrived(site, principal, upload, plan))
        key = _key(saved, plan, rows) + (f"-{upload}" if again else "")
        if bid := _batch_of(site, principal, key):
            return Deposited(bid=bid, again=True)
        _require_depositable(plan, draft_preview.judge(site, profile, plan, saved))
        draft.write(root, upload, saved.model_copy(update={"key": key}))
        requested = _submission(site, principal, upload, saved, plan, rows, key)
        try:
            done = submission.submit(site, principal, requested, _counts)
        except UsageRefused as refused:
            other = _batch_of(site, principal, key) if refused.code is codes.KEY_REUSED else None
            if other is None:
                raise
            return Deposited(bid=other, again=True)  # another upload of the same was deposited at this moment
        note = (
            "" if done.sent else "Redis does not answer: nothing is lost, and the work starts once it is back"
        )
        return Deposited(bid=done.bid, again=done.again, note=note)


def _counts(batch: Batch) -> bool:
    """Whether the batch is the answer to the same deposit."""
    return batch.status.status not in (BatchState.FAILED, BatchState.UPDATE_REPORTING, BatchState.DELETED)


def _batch_of(site: Site, principal: Principal, key: str) -> str | None:
    """The batch that was made under this key, if it counts."""
    batch = batches.under_key(site.session, key, principal.identity) if key else None
    return batch.bid if batch is not None and _counts(batch) else None


def _arrived(site: Site, principal: Principal, upload: str, plan: DraftPlan) -> dict[str, UploadedFile]:
    """The files of the plan; `draft-incomplete` if some are not there, or are not as declared."""
    files: dict[str, UploadedFile] = {}
    problems: dict[str, str] = {}
    for chosen in (chosen for planned in plan.objects for chosen in planned.files):
        file = stored.find_file(site.settings.uploads_folder, upload, FILES + chosen.name)
        if file is not None and not (problem := _difference(chosen, file)):
            files[chosen.name] = file
        else:
            problems[chosen.name] = problem if file else "has not arrived"
    if problems:
        _drop(site, principal, upload, [name for name in problems if name])
        name, problem = next(iter(problems.items()))
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        raise DraftRefused(
            f"nothing was deposited: {name} {problem}{more}; send it, then deposit again",
            tuple({"file": name, "message": problem} for name, problem in islice(problems.items(), NAMED)),
            code=codes.DRAFT_INCOMPLETE,
        )
    return files


def _difference(chosen: DraftFile, file: UploadedFile) -> str:
    if file.size != chosen.size:
        return f"has {file.size:,} bytes, but {chosen.size:,} were chosen: it has changed"
    if chosen.sha512 not in (None, file.sha512):
        return "has another digest than was declared: it has changed, or was damaged on the way"
    return ""


def _drop(site: Site, principal: Principal, upload: str, names: Iterable[str]) -> None:
    """Remove files that are not as chosen, so that they can be sent again.

    A batch may read the files of an upload that was submitted: they stay, and a change needs another upload.
    """
    root = site.settings.uploads_folder
    if stored.load(root, upload, principal.identity).submitted is None:
        for name in names:
            writing.remove_file(root, upload, FILES + name)
        site.quotas.of(principal.identity).forget()


def _with_digests(upload: str, plan: DraftPlan, files: dict[str, UploadedFile]) -> list[Row]:
    """The rows of the manifest, or of the only payload, with the digests of the bytes that have arrived."""
    rows: list[Row] = []
    for planned in plan.objects:
        if not planned.files:
            rows.append(replace(planned.row, line=0))
        for chosen in planned.files:
            file = files[chosen.name]
            digest = Digest(algorithm=OF_RECORD, value=file.sha512)
            if plan.type is SubmissionType.OBJECT_MANIFEST:
                rows.append(
                    Row(0, UploadAddress(upload, FILES + chosen.name).url, chosen.name, digest, file.size)
                )
            else:
                rows.append(replace(planned.row, line=0, digest=planned.row.digest or digest, size=file.size))
    return rows


def _key(saved: SavedDraft, plan: DraftPlan, rows: Iterable[Row]) -> str:
    """The idempotency key of the content, whatever upload it is in."""
    one = plan.objects[0].row if plan.objects and plan.type in ONE_OBJECT else None
    described = [replace(row, url="" if is_upload(row.url) else row.url) for row in rows]
    content = [saved.profile, plan.type, one and _described(one), [_described(row) for row in described]]
    return f"draft-{sha256(json.dumps(content).encode()).hexdigest()}"


def _described(row: Row) -> list[Any]:
    digest = row.digest and f"{row.digest.algorithm}:{row.digest.value}"
    return [
        row.url,
        row.name,
        digest,
        row.mime_type,
        row.primary_id,
        row.local_id,
        row.creator,
        row.title,
        row.date,
    ]


def _require_depositable(plan: DraftPlan, judged: Judgement) -> None:
    erroneous = [planned for planned in plan.objects if planned.errors]
    if not erroneous and not plan.errors:
        return
    listed: list[dict[str, Any]] = [{"message": message} for message in plan.errors]
    listed += [
        {"key": planned.key, "field": problem.field, "message": problem.message}
        for planned in erroneous
        for problem in planned.errors
    ]
    listed += [{"ark": ark, "version": number} for ark, number in judged.outdated.items()]
    raise DraftRefused(
        f"nothing was deposited, because {len(erroneous):,} of {len(plan.objects):,} objects have errors: "
        f"{listed[0]['message']}",
        tuple(listed[:NAMED]),
        code=codes.DRAFT_OUTDATED if judged.outdated else codes.DRAFT_REFUSED,
    )


def _submission(  # noqa: PLR0913 - what a submission is made of
    site: Site,
    principal: Principal,
    upload: str,
    saved: SavedDraft,
    plan: DraftPlan,
    rows: list[Row],
    key: str,
) -> Submission:
    """The submission of the only payload, or of the manifest, which is written into the upload."""
    if plan.profile is None:
        (payload,) = rows
        url, name, digest, size = payload.url, payload.name, payload.digest, payload.size
    else:
        try:
            data = checkm.write(plan.profile, rows)
        except ManifestError as unwritable:
            raise DraftRefused(str(unwritable)) from unwritable
        check_manifest_size(site.settings, len(data), "the manifest of the deposit")
        # named by its content: a draft that is changed after a crash needs another one
        name = f"manifest-{sha256(data).hexdigest()[:16]}.checkm"
        file = uploads.receive_file(site, principal, upload, Declared(name=name), BytesIO(data))
        url, size = UploadAddress(upload, name).url, file.size
        digest = Digest(algorithm=OF_RECORD, value=file.sha512)
    described = plan.objects[0].row if plan.type in ONE_OBJECT else None
    return Submission(
        profile_name=saved.profile,
        submitter=principal.name,
        payload_url=url,
        payload_filename=name,
        type=plan.type,
        digest=digest,
        size=size,
        erc_who=described.creator if described else "",
        erc_what=described.title if described else "",
        erc_when=described.date if described else "",
        local_id=described.local_id if described else (),
        primary_id=described.primary_id if described else None,
        new_version=bool(saved.new_version),
        idempotency_key=key,
    )


def _table(
    site: Site, upload: str, saved: SavedDraft
) -> tuple[PreviewTable | None, list[TableRow], list[str]]:
    if saved.objects is not Objects.TABLE:
        return None, [], []
    file = stored.find_file(site.settings.uploads_folder, upload, saved.table or "")
    if file is None:
        return None, [], [f"the table {quote_name(saved.table or '')} has not arrived"]
    data = (stored.file_folder(site.settings.uploads_folder, upload, file.name) / stored.CONTENT).read_bytes()
    return read_table(data, saved)
