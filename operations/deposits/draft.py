"""Drafts: saved, previewed, listed, and deposited.

Rule: a deposit is recognized by its content. Its idempotency key is made of the collection, and of the names,
digests and descriptions of its objects, and belongs to the principal, so that two tabs, or a request whose
answer was lost, make one batch. A batch that failed or was deleted does not count: the same deposit then
makes another.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from pydantic import Field

from operations.deposits import submission, uploads
from operations.deposits.corrections import Cells, carried
from operations.deposits.draft_plan import DraftPlan, omitted_of, plan_draft
from operations.deposits.draft_preview import PAGE, DraftList, DraftRow, DraftView, Preview, preview_of
from operations.deposits.local_deposit import FILES
from operations.deposits.local_upload import arrived_row, payload_name
from operations.deposits.validation import check_manifest_size
from operations.site import Site
from pipeline import codes
from pipeline.decoding.calls import read_table
from pipeline.decoding.decoder import Decoder
from pipeline.errors import UsageRefused
from pipeline.fixity import OF_RECORD, Digest
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestError, Row
from pipeline.names import UploadAddress, is_upload, quote_name
from pipeline.principal import Forbidden, Principal, Role
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.records import NAME_LENGTH, Record, Submission, SubmissionType
from pipeline.tables.content import Choice, TableContent
from pipeline.uploads import draft, stored, writing
from pipeline.uploads.draft import Arrived, Draft, DraftFile, DraftRefused, Objects, SavedDraft
from pipeline.uploads.stored import Declared, UploadedFile
from zkstate.record import space

DRAFTS, LOOKED_AT = 50, 500
"""Maximum drafts in a principal's list, the latest first, and maximum drafts that are read for it."""

LOOKED_BYTES = 64 << 20
"""Maximum bytes of the drafts that are read for a list, a second of a thread; a draft has half at most."""

NAMED = 500
"""Maximum files or values that a refused deposit names."""

TABLES = 4
"""Tables that a process remembers: each correction asks for the preview again."""


class Deposited(Record):
    bid: str
    again: bool = Field(description="The same was deposited before, and this request added nothing.")


def save(site: Site, principal: Principal, upload: str, given: Draft, version: int | None = None) -> Preview:
    """Save the draft, and preview it; `draft-submitted` once a batch was made of it.

    `version`: the one that the depositor saw; `draft-changed` if the draft has another one.
    """
    root = site.settings.uploads_folder
    uploads.own_upload(site, principal, upload)
    profile = _profile(site, principal, given)
    with draft.locked(root, upload):
        status = draft.status(root, upload)
        before = _before(root, upload, given, version)
        before.require(version)
        if bid := submission.batch_under(site, principal, before.key):
            raise DraftRefused(
                f"{bid} was made of the draft of upload {upload}, which cannot be changed any more: begin "
                "another upload",
                code=codes.DRAFT_SUBMITTED,
            )
        files = given.files if "files" in given.model_fields_set else before.files
        saved = SavedDraft(**dict(given) | {"files": files, "version": before.version + 1})
        saved, lost = _with_rows(site, upload, saved, before.rows)
        data = saved.model_dump_json().encode()
        more = len(data) - (status.st_size if status else 0)
        with site.quotas.of(principal.identity).taking(size=max(0, more)):
            draft.write(root, upload, data)
        arrived = Arrived(root, upload)
        sizes = ((file, arrived.size(FILES + file.name)) for file in saved.files)
        if changed := [file.name for file, size in sizes if size not in (None, file.size)]:
            _drop(site, principal, upload, changed)
            arrived = Arrived(root, upload)
    plan = _judged(site, principal, profile, upload, saved)
    preview = preview_of(plan, saved, profile, arrived, slice(0, PAGE), errors_only=False)
    moved = saved.values if saved.values != given.values else None
    return preview.model_copy(update={"values": moved, "lost": lost})


def _before(root: Path, upload: str, given: Draft, version: int | None) -> SavedDraft:
    """The draft so far, or the given one; a damaged one may be replaced, if the files are sent again."""
    try:
        return draft.read(root, upload)
    except DraftRefused:
        if draft.status(root, upload) and "files" not in given.model_fields_set:
            raise
        return SavedDraft(**dict(given) | {"version": version or 0})


def _with_rows(
    site: Site, upload: str, saved: SavedDraft, known: Mapping[str, Cells]
) -> tuple[SavedDraft, dict[str, str]]:
    """The draft whose corrections have followed their rows, and the corrections whose rows are gone.

    `known`: the rows as they were. If there is no table to read, nothing is concluded.
    """
    try:
        table = _table(site, upload, saved) if saved.values and saved.objects is Objects.TABLE else None
    except UsageRefused:
        table = None
    if table is None:
        return saved.model_copy(update={"rows": dict(known)}), {}
    values, lost, rows = carried(saved.values, known, table)
    return saved.model_copy(update={"values": values, "rows": rows}), lost


def show(
    site: Site, principal: Principal, upload: str, after: int, limit: int, *, errors_only: bool
) -> DraftView:
    """The draft with a page of its preview; `no-draft`, `upload-missing`.

    A collection to which nothing may be deposited any more is an error of the preview.
    """
    uploads.own_upload(site, principal, upload)
    saved = draft.read(site.settings.uploads_folder, upload)
    try:
        profile = _profile(site, principal, saved)
        plan = _judged(site, principal, profile, upload, saved)
    except (Forbidden, ProfileError) as refused:  # what has arrived can go to another collection
        profile, plan = None, _planned(site, upload, saved)
        plan.errors.append(str(refused))
    arrived = Arrived(site.settings.uploads_folder, upload)
    return DraftView(
        id=upload,
        draft=None if after else saved,
        updated=saved.updated,
        preview=preview_of(
            plan, saved, profile, arrived, slice(after, after + limit), errors_only=errors_only
        ),
        bid=submission.batch_under(site, principal, saved.key),
        expires=_expires(site, upload),
    )


def unfinished(site: Site, principal: Principal) -> DraftList:
    """The principal's drafts of which no batch was made, the latest first."""
    root = site.settings.uploads_folder
    if space.was_marked(site.session):
        stored.require(root)  # no draft is missing because the folder is not mounted
    own = stored.names_in(stored.owner_folder(root, principal.identity))
    known = {upload: there for upload in own if (there := draft.status(root, upload))}
    latest = sorted(known, key=lambda upload: known[upload].st_mtime, reverse=True)
    sizes = accumulate(known[upload].st_size for upload in latest[:LOOKED_AT])
    looked_at = [upload for upload, size in zip(latest, sizes, strict=False) if size <= LOOKED_BYTES]
    rows = (_row_of(site, principal, upload) for upload in looked_at)
    return DraftList(drafts=tuple(islice(filter(None, rows), DRAFTS)), all=len(latest) == len(looked_at))


def _row_of(site: Site, principal: Principal, upload: str) -> DraftRow | None:
    """The draft in the list; None if a batch was made of it, or it was removed meanwhile."""
    root = site.settings.uploads_folder
    try:
        uploads.own_upload(site, principal, upload)
        saved = draft.read(root, upload)
    except DraftRefused as refused:
        return DraftRow(id=upload, expires=_expires(site, upload), problem=str(refused))
    except UsageRefused:
        return None
    if submission.batch_under(site, principal, saved.key):
        return None
    arrived = Arrived(root, upload)
    own = saved.table if saved.objects is Objects.TABLE else None  # it has no prefix in the upload
    omitted = omitted_of(saved)
    files = [file for file in saved.files if file.name not in omitted]
    names = (file.name if file.name == own else FILES + file.name for file in files)
    sizes = [size for name in names if (size := arrived.size(name)) is not None]
    return DraftRow(
        **saved.model_dump(include={"name", "profile", "objects", "updated"}),
        id=upload,
        files=len(files),
        bytes=sum(file.size for file in files),
        arrived_files=len(sizes),
        arrived_bytes=sum(sizes) + arrived.unfinished,
        expires=_expires(site, upload),
    )


def _expires(site: Site, upload: str) -> datetime:
    """When the upload is removed, by the clock of the file system, which dated its files."""
    root = site.settings.uploads_folder
    with stored.faults(root):
        changed = datetime.fromtimestamp(writing.last_written(stored.folder_of(root, upload)), UTC)
    return changed + timedelta(days=site.settings.upload_days)


def _profile(site: Site, principal: Principal, given: Draft) -> Profile:
    principal.require(Role.DEPOSITOR, f"submit to collection {given.profile}", given.profile)
    return site.profile(given.profile)


def _judged(site: Site, principal: Principal, profile: Profile, upload: str, saved: SavedDraft) -> DraftPlan:
    """The plan, with what the site knows of it."""
    plan = _planned(site, upload, saved)
    plan.judge(site, profile, _submission(principal, upload, saved, plan))
    return plan


def _planned(site: Site, upload: str, saved: SavedDraft) -> DraftPlan:
    """The plan, not judged yet; of a table that cannot be read, it has the reason alone."""
    try:
        table = _table(site, upload, saved) if saved.objects is Objects.TABLE else None
    except UsageRefused as unreadable:
        return replace(plan_draft(upload, saved, None), errors=[str(unreadable)])
    return plan_draft(upload, saved, table)


def _table(site: Site, upload: str, saved: SavedDraft) -> TableContent:
    """The table; UsageRefused if it has not arrived, or cannot be read."""
    root, name = site.settings.uploads_folder, saved.table or ""
    file = stored.find_file(root, upload, name) if name else None
    if file is None:
        raise UsageRefused(f"the table {quote_name(name)} has not arrived" if name else "choose the table")
    check_manifest_size(site.settings, file.size, f"table {quote_name(name)}")
    columns = tuple(saved.columns.items())
    path = stored.file_folder(root, upload, name) / stored.CONTENT
    with stored.faults(root):
        return _read_table(
            site.decoder, path, file.sha512, name, saved.sheet or "", saved.header_row, columns
        )


@lru_cache(maxsize=TABLES)
def _read_table(  # noqa: PLR0913 - what a table's content depends on
    decoder: Decoder,
    path: Path,
    sha512: str,
    name: str,
    sheet: str,
    header_row: int | None,
    columns: tuple[tuple[str, str], ...],
) -> TableContent:
    """`sha512`: of the bytes at `path`, which another file of the same name may replace."""
    del sha512
    return read_table(decoder, path.read_bytes(), name, Choice(sheet, header_row, dict(columns)))


def deposit(
    site: Site, principal: Principal, upload: str, version: int | None = None, *, again: bool = False
) -> Deposited:
    """Deposit the draft; the same deposit sent twice is one batch, unless `again` says otherwise.

    `draft-incomplete` names the files that are not there as declared, `draft-refused` what is wrong, and
    `draft-outdated` the objects that got a version since the depositor agreed to the next one.
    """
    root = site.settings.uploads_folder
    uploads.own_upload(site, principal, upload)
    with draft.locked(root, upload):
        saved = draft.read(root, upload)
        saved.require(version)
        profile = _profile(site, principal, saved)
        plan = _planned(site, upload, saved)
        rows = _rows(upload, plan, _arrived(site, principal, upload, plan))
        key = _key(saved, plan, rows) + (f"-{upload}" if again else "")
        if bid := submission.batch_under(site, principal, key):
            return Deposited(bid=bid, again=True)
        described = _submission(principal, upload, saved, plan)
        plan.judge(site, profile, described)
        _require_depositable(saved, plan)
        draft.write(root, upload, saved.model_copy(update={"key": key}).model_dump_json().encode())
        payload = rows[0] if plan.profile is None else _manifest(site, principal, upload, plan, rows)
        requested = described.model_copy(
            update={
                "payload_url": payload.url,
                "payload_filename": payload_name(plan.type, described.deposit_name, payload.name),
                "digest": payload.digest,
                "size": payload.size,
                "idempotency_key": key,
            }
        )
        done = submission.submit_same(site, principal, requested)
    return Deposited(bid=done.bid, again=done.again)


def _arrived(site: Site, principal: Principal, upload: str, plan: DraftPlan) -> dict[str, UploadedFile]:
    """Name -> file of the plan; files that are not as declared are removed, to be sent again."""
    files, problems, changed = dict[str, UploadedFile](), dict[str, str](), set[str]()
    for chosen in (chosen for planned in plan.objects for chosen in planned.files):
        file = stored.find_file(site.settings.uploads_folder, upload, FILES + chosen.name)
        if file is None:
            problems[chosen.name] = "has not arrived"
        elif problem := _difference(chosen, file):
            problems[chosen.name] = problem
            changed.add(chosen.name)
        else:
            files[chosen.name] = file
    if changed:
        _drop(site, principal, upload, changed)
    if problems:
        name, problem = next(iter(problems.items()))
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        raise DraftRefused(
            f"nothing was deposited: {quote_name(name)} {problem}{more}; send it, then deposit again",
            tuple({"file": name, "message": problem} for name, problem in islice(problems.items(), NAMED)),
            code=codes.DRAFT_INCOMPLETE,
        )
    return files


def _difference(chosen: DraftFile, file: UploadedFile) -> str:
    if file.size != chosen.size:
        return f"has {file.size:,} bytes, and {chosen.size:,} were declared: it has changed"
    if chosen.sha512 not in (None, file.sha512):
        return "has another digest than the declared one: it has changed, or was damaged on the way"
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


def _rows(upload: str, plan: DraftPlan, files: Mapping[str, UploadedFile]) -> list[Row]:
    """The rows of the manifest, or of the only payload, with the digests of the bytes that have arrived."""
    rows: list[Row] = []
    for planned in plan.objects:
        if not planned.files:
            rows.append(replace(planned.row, line=0))
        for file in (files[chosen.name] for chosen in planned.files):
            of_several = plan.type is SubmissionType.OBJECT_MANIFEST
            row = Row(0, "", file.name.removeprefix(FILES)) if of_several else planned.row
            rows.append(arrived_row(row, upload, file))
    return rows


def _key(saved: SavedDraft, plan: DraftPlan, rows: Sequence[Row]) -> str:
    """The idempotency key of the content, whatever upload it is in."""
    described = [] if plan.type.is_batch else plan.objects[:1]
    content = [
        (
            "" if is_upload(row.url) else row.url,
            *(row.name, row.size, row.digest and (row.digest.algorithm, row.digest.value), row.mime_type),
            *(row.primary_id, row.local_id, row.creator, row.title, row.date),
        )
        for row in (*(planned.row for planned in described), *rows)
    ]
    return f"draft-{sha256(json.dumps([saved.profile, plan.type, content]).encode()).hexdigest()}"


def _require_depositable(saved: SavedDraft, plan: DraftPlan) -> None:
    wrong = [(planned, problem) for planned in plan.objects for problem in planned.errors]
    listed: list[dict[str, Any]] = [{"message": message} for message in plan.errors]
    listed += [{"key": planned.key, **problem.model_dump()} for planned, problem in wrong]
    outdated = [
        {"ark": planned.version_of, "version": (planned.version or 1) - 1}
        for planned, problem in wrong
        if problem.field == "new_version" and planned.version_of in saved.new_version
    ]
    if listed:
        more = f" (and {len(listed) - 1:,} more errors)" if len(listed) > 1 else ""
        raise DraftRefused(
            f"nothing was deposited: {listed[0]['message']}{more}",
            tuple((outdated + listed)[:NAMED]),
            code=codes.DRAFT_OUTDATED if outdated else codes.DRAFT_REFUSED,
        )


def _submission(principal: Principal, upload: str, saved: SavedDraft, plan: DraftPlan) -> Submission:
    """The submission without its payload, which is known when all files have arrived."""
    one = plan.objects[0].row if plan.objects and not plan.type.is_batch else Row(0, "", "")
    return Submission(
        profile_name=saved.profile,
        deposit_name=saved.name.strip() or (saved.table and saved.table[:NAME_LENGTH]),
        submitter=principal.name,
        payload_url=UploadAddress(upload).url,
        type=plan.type,
        erc_who=one.creator,
        erc_what=one.title,
        erc_when=one.date,
        local_id=one.local_id,
        primary_id=one.primary_id,
        new_version=False,
        new_version_of=saved.new_version,
        owner=principal.identity,
    )


def _manifest(site: Site, principal: Principal, upload: str, plan: DraftPlan, rows: Iterable[Row]) -> Row:
    """Write the manifest into the upload. It is named by its content: a draft that is changed after a crash
    needs another one, and no file of an upload is changed."""
    assert plan.profile is not None
    try:
        data = checkm.write(plan.profile, rows)
    except ManifestError as unwritable:
        raise DraftRefused(f"nothing was deposited: {unwritable}") from unwritable
    check_manifest_size(site.settings, len(data), "the manifest of the deposit")
    name = f"manifest-{sha256(data).hexdigest()[:16]}.checkm"
    file = uploads.receive_file(site, principal, upload, Declared(name=name), BytesIO(data))
    digest = Digest(algorithm=OF_RECORD, value=file.sha512)
    return Row(0, UploadAddress(upload, name).url, name, digest, file.size)
