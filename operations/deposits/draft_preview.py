"""The preview of a draft: its planned objects, judged by what the repository and the collection know.

Rule: `judge` adds errors to a plan, once; a preview and a deposit have the same judgement.
"""

from dataclasses import dataclass

from pydantic import Field

from operations.deposits.draft_plan import DraftObject, DraftPlan, MissingFile
from operations.deposits.local_deposit import FILES
from operations.deposits.planned import FieldProblem
from operations.site import Site
from pipeline.http.urls import redact_url
from pipeline.identifiers import minter
from pipeline.names import NotAnArk, canonical_ark, is_upload, quote_name
from pipeline.profiles.profile import Profile
from pipeline.records import Record
from pipeline.uploads.draft import Arrived, SavedDraft

PAGE = 100
"""Objects of a preview's first page."""

LISTED = 500
"""Maximum names of files in each list of a preview; all are counted."""


class PreviewFile(Record):
    name: str
    size: int | None = None
    """null: a file at a URL, whose size the table does not give."""
    arrived: bool = False
    url: str | None = None
    """The address of a file that is not uploaded, without secrets."""


class PreviewObject(Record):
    """One object that would be made."""

    key: str = Field(description="What its corrections begin with, in `values`: `KEY:FIELD`.")
    row: int = Field(description="The table's row; else its place, from 1; 0: the only object.")
    title: str = ""
    creator: str = ""
    date: str = ""
    local_id: tuple[str, ...] = ()
    ark: str | None = Field(None, description="As the depositor gives it.")
    files: tuple[PreviewFile, ...] = Field((), description=f"The first {LISTED}.")
    file_count: int = 0
    version_of: str | None = Field(None, description="The ARK of the object here that it would change.")
    version: int | None = Field(
        None,
        description="The version that it would become; the consent is `new_version: {ARK: version - 1}`.",
    )
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()


class PreviewColumn(Record):
    header: str
    field: str | None = None


class PreviewTable(Record):
    sheets: tuple[str, ...] = ()
    sheet: str | None = None
    header_row: int | None = None
    columns: tuple[PreviewColumn, ...] = ()
    remarks: tuple[str, ...] = ()


class CollectionFacts(Record):
    """What the collection accepts; null: no limit."""

    description: str = ""
    file_bytes: int
    object_files: int | None = None
    object_bytes: int | None = None
    batch_jobs: int | None = None
    new_versions: bool = Field(description="An object that is here gets a version without a consent.")
    review: bool = False


class Preview(Record):
    """What a draft would deposit: a page of its objects, and what is true of all of them."""

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
    facts: CollectionFacts


@dataclass(frozen=True)
class Judgement:
    facts: CollectionFacts
    becomes: dict[str, tuple[str, int]]
    """Key of an object -> ARK and number of the version that it would become."""
    outdated: dict[str, int]
    """ARK -> number of its last version, which is another than the depositor agreed to replace."""


def judge(site: Site, profile: Profile, plan: DraftPlan, saved: SavedDraft) -> Judgement:
    limits = profile.limits
    facts = CollectionFacts(
        description=profile.description,
        file_bytes=site.settings.upload_bytes,
        object_files=limits.object_files,
        object_bytes=limits.object_bytes,
        batch_jobs=limits.batch_jobs,
        new_versions=profile.new_versions,
        review=profile.review,
    )
    _check_limits(plan, facts)
    return _known_objects(site, profile, plan, saved, facts)


def _check_limits(plan: DraftPlan, facts: CollectionFacts) -> None:
    if facts.batch_jobs is not None and len(plan.objects) > facts.batch_jobs:
        plan.errors.append(
            f"{len(plan.objects):,} objects are more than the {facts.batch_jobs:,} of one deposit: divide it"
        )
    for planned in plan.objects:
        if facts.object_files is not None and len(planned.files) > facts.object_files:
            planned.error(
                f"{len(planned.files):,} files are more than the {facts.object_files:,} of one object"
            )
        size = sum(file.size for file in planned.files)
        if facts.object_bytes is not None and size > facts.object_bytes:
            planned.error(f"{size:,} bytes are more than the {facts.object_bytes:,} of one object")
        for file in planned.files:
            if file.size > facts.file_bytes:
                planned.error(
                    f"{quote_name(file.name)} has more than the {facts.file_bytes:,} bytes that are accepted "
                    "for one file",
                    "file",
                )


def _known_objects(
    site: Site, profile: Profile, plan: DraftPlan, saved: SavedDraft, facts: CollectionFacts
) -> Judgement:
    """Add the objects that are here already; those that may not get a version have an error."""
    rows = [planned.row for planned in plan.objects]
    named = [canonical for row in rows if row.primary_id and (canonical := _ark(row.primary_id))]
    local_ids = [name for row in rows for name in row.local_id]
    inventory = site.archive() if named or local_ids else None
    if inventory is None:
        return Judgement(facts, {}, {})
    arks = inventory.arks_of(profile.owner, local_ids)
    placements = inventory.placements_of([*arks.values(), *named])
    becomes: dict[str, tuple[str, int]] = {}
    outdated: dict[str, int] = {}
    for planned in plan.objects:
        own = [arks[name] for name in planned.row.local_id if name in arks]
        given = _ark(planned.row.primary_id) if planned.row.primary_id else ""
        ark = given or next(iter(own), "")
        if any(other != ark for other in own):
            planned.error(
                f"its identifiers belong to several objects: {', '.join(dict.fromkeys((ark, *own)))}"
            )
        if not ark:
            continue
        placement = placements.get(ark)
        if problem := minter.ownership_problem(ark, profile, placement, given=bool(given)):
            planned.error(problem, "ark" if given else "local_id")
            continue
        if placement is None:
            continue
        current, agreed = placement.version, saved.new_version.get(ark)
        becomes[planned.key] = ark, current + 1
        if profile.new_versions:
            continue
        if problem := minter.consent_problem(ark, profile, placement, current, agreed):
            planned.error(problem, "new_version")
            if agreed is not None:
                outdated[ark] = current
    return Judgement(facts, becomes, outdated)


def _ark(given: str) -> str:
    try:
        return canonical_ark(given)
    except NotAnArk:
        return ""  # an error of its row


def preview(  # noqa: PLR0913 - a page of what is known
    plan: DraftPlan,
    table: PreviewTable | None,
    judged: Judgement,
    arrived: Arrived,
    after: int = 0,
    limit: int = PAGE,
    *,
    errors_only: bool = False,
) -> Preview:
    """A page of the objects, from place `after`."""
    sizes = [arrived.size(FILES + file.name) for planned in plan.objects for file in planned.files]
    shown = [planned for planned in plan.objects if planned.errors or not errors_only]
    page = shown[after : after + limit]
    return Preview(
        objects=tuple(_shown(planned, judged, arrived) for planned in page),
        next=str(after + limit) if after + limit < len(shown) else None,
        object_count=len(plan.objects),
        file_count=sum(len(planned.files) or bool(planned.row.url) for planned in plan.objects),
        bytes=sum(file.size for planned in plan.objects for file in planned.files),
        arrived_files=sum(size is not None for size in sizes),
        arrived_bytes=sum(filter(None, sizes)),
        erroneous=sum(bool(planned.errors) for planned in plan.objects),
        errors=tuple(plan.errors),
        warnings=tuple(plan.warnings),
        table=table,
        unlisted=plan.unlisted[:LISTED],
        unlisted_count=len(plan.unlisted),
        left_out=plan.left_out[:LISTED],
        left_out_count=len(plan.left_out),
        missing=plan.missing[:LISTED],
        missing_count=len(plan.missing),
        facts=judged.facts,
    )


def _shown(planned: DraftObject, judged: Judgement, arrived: Arrived) -> PreviewObject:
    row = planned.row
    files = tuple(
        PreviewFile(name=file.name, size=file.size, arrived=arrived.size(FILES + file.name) == file.size)
        for file in planned.files[:LISTED]
    )
    if not files and row.url and not is_upload(row.url):
        files = (PreviewFile(name=row.name, size=row.size, url=redact_url(row.url)),)
    ark, version = judged.becomes.get(planned.key, (None, None))
    return PreviewObject(
        key=planned.key,
        row=planned.number,
        title=row.title,
        creator=row.creator,
        date=row.date,
        local_id=row.local_id,
        ark=row.primary_id,
        files=files,
        file_count=len(planned.files) or len(files),
        version_of=ark,
        version=version,
        errors=tuple(planned.errors),
        warnings=tuple(planned.warnings),
    )
