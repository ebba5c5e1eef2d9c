"""What people see of a draft: a page of the objects that would be made, and what is true of all of them."""

from datetime import datetime

from pydantic import Field

from operations.deposits.draft_plan import DraftObject, DraftPlan, MissingFile
from operations.deposits.local_deposit import FILES
from operations.deposits.planned import FieldProblem
from pipeline.http.urls import redact_url
from pipeline.names import is_upload
from pipeline.profiles.profile import Profile, ProfileLimits
from pipeline.records import Record
from pipeline.uploads.draft import Arrived, Draft, Objects, SavedDraft

PAGE = 100
"""Objects of a preview's first page."""

LISTED = 500
"""Maximum names and messages in each list of a preview; names are counted."""


class PreviewFile(Record):
    name: str
    size: int | None = Field(None, description="null: a URL, for which the table gives none.")
    arrived: bool = Field(False, description="All its bytes, as far as its size tells.")
    url: str | None = Field(None, description="Its address, without secrets, if it is not uploaded.")


class PreviewObject(Record):
    """An object that would be made."""

    key: str = Field(description="What its corrections begin with, in `values`: `KEY:FIELD`.")
    row: int = Field(description="The table's row; else the file's place, from 1; 0: the only object.")
    title: str = ""
    creator: str = ""
    date: str = ""
    local_id: tuple[str, ...] = ()
    ark: str | None = Field(None, description="As the depositor gives it.")
    files: tuple[PreviewFile, ...] = Field((), description=f"The first {LISTED}.")
    file_count: int = 0
    version_of: str | None = Field(None, description="The object here of which it would become a version.")
    version: int | None = Field(
        None, description="That version's number; the consent is `new_version: {ARK: version - 1}`."
    )
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()


class PreviewColumn(Record):
    header: str
    field: str | None = Field(None, description="null: the column is not used.")


class PreviewTable(Record):
    """The table as it was read."""

    sheets: tuple[str, ...] = ()
    sheet: str | None = None
    header_row: int
    columns: tuple[PreviewColumn, ...] = ()
    listed: bool = Field(
        False, description="A row names the table itself, which is sent as `files/NAME`, too."
    )


class Preview(Record):
    """A page of the objects that would be made, and what is true of all of them."""

    version: int = Field(0, description="The draft's; `If-Match` takes it in quotes.")
    values: dict[str, str] | None = Field(
        None,
        description="The corrections, if rows of the table have moved: in place of those that were sent.",
    )
    lost: dict[str, str] = Field(
        default_factory=dict, description="Corrections that were removed: the table has their rows no more."
    )
    objects: tuple[PreviewObject, ...] = ()
    next: str | None = None
    object_count: int = 0
    file_count: int = 0
    bytes: int = 0
    arrived_files: int = 0
    arrived_bytes: int = 0
    erroneous: int = Field(0, description="Objects with errors.")
    errors: tuple[str, ...] = Field((), description="Errors of the deposit as a whole.")
    warnings: tuple[str, ...] = ()
    table: PreviewTable | None = None
    unlisted: tuple[str, ...] = Field((), description="Chosen files that no row of the table names.")
    unlisted_count: int = 0
    left_out: tuple[str, ...] = Field((), description="Files of the operating system, such as .DS_Store.")
    left_out_count: int = 0
    missing: tuple[MissingFile, ...] = Field((), description="Files that rows name and that were not chosen.")
    missing_count: int = 0
    limits: ProfileLimits = Field(description="Those of the collection and the site.")
    new_versions: bool = Field(description="Objects of the collection get versions without a consent.")


class DraftView(Record):
    """A draft with a page of its preview."""

    id: str
    draft: Draft | None = Field(None, description="null on later pages.")
    updated: datetime
    preview: Preview
    bid: str | None = Field(None, description="The batch that was made of it.")
    expires: datetime = Field(description="When it is removed, unless it changes before.")


class DraftRow(Record):
    """A draft of which no batch was made yet."""

    id: str
    name: str = ""
    profile: str | None = None
    objects: Objects | None = None
    files: int = 0
    bytes: int = 0
    arrived_files: int = 0
    arrived_bytes: int = 0
    updated: datetime | None = None
    expires: datetime
    problem: str | None = Field(None, description="Why the draft cannot be read.")


class DraftList(Record):
    drafts: tuple[DraftRow, ...] = ()
    all: bool = Field(True, description="false: the oldest drafts were not looked at.")


def _table(plan: DraftPlan, name: str | None) -> PreviewTable | None:
    if (table := plan.table) is None:
        return None
    columns = zip(table.header, table.fields, strict=True)
    return PreviewTable(
        sheets=table.sheets,
        sheet=table.sheet or None,
        header_row=table.header_row,
        columns=tuple(PreviewColumn(header=header, field=name or None) for header, name in columns),
        listed=any(file.name == name for planned in plan.objects for file in planned.files),
    )


def preview_of(
    plan: DraftPlan,
    saved: SavedDraft,
    profile: Profile | None,
    arrived: Arrived,
    page: slice,
    *,
    errors_only: bool,
) -> Preview:
    """A page of the judged objects: the places from `page.start` to `page.stop`.

    `profile`: None if nothing may be deposited to the collection any more.
    """
    sizes = [arrived.size(FILES + file.name) for planned in plan.objects for file in planned.files]
    there = [size for size in sizes if size is not None]
    shown = [planned for planned in plan.objects if planned.errors or not errors_only]
    return Preview(
        version=saved.version,
        objects=tuple(_shown(planned, arrived) for planned in shown[page]),
        next=str(page.stop) if page.stop < len(shown) else None,
        object_count=len(plan.objects),
        file_count=sum(len(planned.files) or bool(planned.row.url) for planned in plan.objects),
        bytes=sum(file.size for planned in plan.objects for file in planned.files),
        arrived_files=len(there),
        arrived_bytes=sum(there),
        erroneous=sum(bool(planned.errors) for planned in plan.objects),
        errors=tuple(plan.errors[:LISTED]),
        warnings=tuple(plan.warnings[:LISTED]),
        table=_table(plan, saved.table),
        unlisted=plan.unlisted[:LISTED],
        unlisted_count=len(plan.unlisted),
        left_out=plan.left_out[:LISTED],
        left_out_count=len(plan.left_out),
        missing=plan.missing[:LISTED],
        missing_count=len(plan.missing),
        limits=profile.limits if profile else ProfileLimits(),
        new_versions=profile is not None and profile.new_versions,
    )


def _shown(planned: DraftObject, arrived: Arrived) -> PreviewObject:
    row = planned.row
    files = tuple(
        PreviewFile(name=file.name, size=file.size, arrived=arrived.size(FILES + file.name) == file.size)
        for file in planned.files[:LISTED]
    )
    if row.url and not is_upload(row.url):
        files = (PreviewFile(name=row.name, size=row.size, url=redact_url(row.url)),)
    return PreviewObject(
        key=planned.key,
        row=planned.number,
        title=row.title,
        creator=row.creator,
        date=row.date,
        local_id=row.local_id,
        ark=row.primary_id,
        files=files,
        file_count=max(len(planned.files), len(files)),
        version_of=planned.version_of,
        version=planned.version,
        errors=tuple(planned.errors),
        warnings=tuple(planned.warnings),
    )
