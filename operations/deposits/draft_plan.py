"""What a draft would deposit: its objects, each with its row of the manifest, its files and its problems.

Rule: a plan depends on the draft and its table alone. The one judge of planned deposits adds what the site
knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from operations.deposits.chosen_files import ChosenFiles, left_out, missing
from operations.deposits.judgement import judge
from operations.deposits.local_deposit import FILES
from operations.deposits.planned import FieldProblem, NamedObject, ObjectFile, of_row
from operations.site import Site
from pipeline.containers.bag import DECLARATION, FETCH_LIST
from pipeline.fixity import OF_RECORD, Digest
from pipeline.manifests import from_csv
from pipeline.manifests.checkm import ManifestProfile, Row, Severity
from pipeline.manifests.checkm_row import Findings
from pipeline.names import (
    COMPOSED_OTHERWISE,
    UploadAddress,
    foreign_upload,
    is_ark,
    is_local,
    quote_name,
)
from pipeline.profiles.profile import Profile
from pipeline.records import Record, Submission, SubmissionType
from pipeline.tables import fields
from pipeline.tables.content import TableContent
from pipeline.uploads.draft import Draft, DraftFile, Objects


class MissingFile(Record):
    """A file that the table names and that was not chosen; `near`: chosen files with similar names."""

    key: str
    name: str
    near: tuple[str, ...] = ()


@dataclass
class DraftObject:
    """An object that would be made."""

    key: str
    """What its corrections begin with: the table's row, the file's name, or 0 for the only object."""
    number: int
    row: Row
    """Its description and, unless it has several files, its payload."""
    files: tuple[DraftFile, ...] = ()
    errors: list[FieldProblem] = field(default_factory=list)
    warnings: list[FieldProblem] = field(default_factory=list)
    version_of: str | None = None
    version: int | None = None

    def add(self, message: str, name: str | None = None, *, error: bool = False) -> None:
        (self.errors if error else self.warnings).append(FieldProblem(message=message, field=name))

    @property
    def named(self) -> NamedObject:
        """The object as the judge takes it."""
        row, alone = self.row, len(self.files) == 1
        if row.primary_id and not is_ark(row.primary_id):
            row = replace(row, primary_id=None)
        files = tuple(
            ObjectFile(
                name=file.name,
                size=row.size if alone else None,
                digest=row.digest if alone else None,
                found_size=file.size,
                found_digest=Digest(algorithm=OF_RECORD, value=file.sha512) if file.sha512 else None,
                to_upload=True,
            )
            for file in self.files
        )
        if files or not row.url:
            return of_row(row, max(1, self.number), "", files)
        payload = ObjectFile(name=row.name, size=row.size, digest=row.digest)
        return of_row(row, max(1, self.number), row.url, (payload,))


@dataclass
class DraftPlan:
    type: SubmissionType
    objects: list[DraftObject]
    unlisted: tuple[str, ...] = ()
    """Chosen files that no row of the table names."""
    left_out: tuple[str, ...] = ()
    """Files that an operating system or a program made for itself."""
    missing: tuple[MissingFile, ...] = ()
    table: TableContent | None = None
    called: str = "files"
    """The word in messages for what is numbered: files or rows."""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def profile(self) -> ManifestProfile | None:
        """That of the manifest which the deposit needs; None if its payload is one file."""
        return ManifestProfile.of(self.type)

    def judge(self, site: Site, profile: Profile, submission: Submission) -> None:
        """Add what the site knows of the objects, once."""
        objects = [planned.named for planned in self.objects]
        judged = judge(site, profile, submission, objects, called=self.called)
        self.errors += [problem.message for problem in judged.errors]
        self.warnings += [problem.message for problem in judged.warnings]
        for planned, verdict in zip(self.objects, judged.objects, strict=True):
            planned.version_of, planned.version = verdict.version_of, verdict.version
            planned.warnings += verdict.warnings
            for problem in verdict.errors:
                named = fields.ARK if problem.field == "primary_id" else problem.field
                if (problem.message, named) not in [(known.message, known.field) for known in planned.errors]:
                    planned.add(problem.message, named, error=True)


def omitted_of(draft: Draft) -> frozenset[str]:
    """The names of the chosen files that are not deposited."""
    return frozenset(left_out([file.name for file in draft.files], one_object=draft.objects is Objects.ONE))


def plan_draft(upload: str, draft: Draft, table: TableContent | None) -> DraftPlan:
    """The plan of the draft; `table`: None if it has none, or one that cannot be read."""
    omitted = omitted_of(draft)
    system = {file.name: file for file in draft.files if file.name in omitted}
    chosen = {file.name: file for file in draft.files if file.name not in system}
    if draft.objects is Objects.TABLE:
        own = chosen.pop(draft.table or "", None)
        plan = _of_table(upload, draft, chosen, system | ({own.name: own} if own else {}), table)
    elif draft.objects is Objects.EACH:
        profile = from_csv.payload_profile({fields.FILE: name} for name in chosen)
        objects = [
            _object(upload, profile, name, number, (file,), _corrected(draft, name, {fields.FILE: name}))
            for number, (name, file) in enumerate(chosen.items(), 1)
        ]
        plan = DraftPlan(profile.submission_type, objects)
    else:
        plan = _of_all(upload, draft, tuple(chosen.values()))
    listed = {file.name for planned in plan.objects for file in planned.files}
    plan.left_out, plan.table = tuple(name for name in system if name not in listed), table
    if DECLARATION in chosen:
        plan.warnings.append(
            "the files are those of a BagIt bag: as one object, they are compared with its manifests"
        )
        if FETCH_LIST in chosen and draft.objects is Objects.ONE:
            plan.errors.append(
                f"{FETCH_LIST} lists files that are elsewhere: deposit this bag as a zip archive"
            )
    if len({file.name for file in draft.files}) < len(draft.files):
        plan.errors.append("a file is listed twice: choose the files again")
    if not plan.objects and not plan.errors:
        plan.errors.append(
            "there is nothing to deposit: choose files, or a table with rows below its header row"
        )
    return plan


def _of_all(upload: str, draft: Draft, files: tuple[DraftFile, ...]) -> DraftPlan:
    """One object: of a container's content, of one file, or of several."""
    kind, profile = SubmissionType.OBJECT_MANIFEST, ManifestProfile.FILE_BATCH
    if len(files) == 1 and "/" not in files[0].name:
        profile = from_csv.payload_profile([{fields.FILE: files[0].name}])
        kind = SubmissionType.FILE if profile is ManifestProfile.FILE_BATCH else SubmissionType.CONTAINER
    values = _corrected(draft, "0", {fields.FILE: files[0].name if files else ""})
    return DraftPlan(kind, [_object(upload, profile, "0", 0, files, values)] if files else [])


def _of_table(
    upload: str,
    draft: Draft,
    chosen: Mapping[str, DraftFile],
    apart: Mapping[str, DraftFile],
    table: TableContent | None,
) -> DraftPlan:
    """An object of each row. `apart`: files that no row has to name: the table, and those of systems."""
    if table is None:
        return DraftPlan(SubmissionType.SINGLE_FILE_BATCH_MANIFEST, [], tuple(chosen), called="rows")
    given = ((row, from_csv.values_of(table, row)) for row in table.rows)
    rows = [(row, _corrected(draft, str(row.number), values)) for row, values in given]
    profile, names = from_csv.payload_profile(values for _, values in rows), ChosenFiles(chosen)
    payloads = [values.get(fields.URL) or values.get(fields.FILE, "") for _, values in rows]
    named = [
        (payload if payload in apart else names.find(payload)) if is_local(payload) else ""
        for payload in payloads
    ]
    listed = set(named)
    left = ChosenFiles(name for name in chosen if name not in listed)
    plan = DraftPlan(profile.submission_type, [], left.names, called="rows")
    first, lacking = dict[str, DraftObject](), list[MissingFile]()
    for (row, values), payload, name in zip(rows, payloads, named, strict=True):
        near: tuple[str, ...] = ()
        if payload and is_local(payload) and not name:
            # what no row names is meant more often than a file of another row
            near = left.near(payload) or names.near(payload)
            lacking.append(MissingFile(key=str(row.number), name=payload, near=near))
        files, findings = (chosen.get(name) or apart[name],) if name else (), Findings()
        from_csv.check_cells(table, row, findings)
        planned = _object(upload, profile, str(row.number), row.number, files, values, findings, near)
        plan.objects.append(planned)
        if name not in ("", payload, PurePosixPath(payload).as_posix()):
            planned.add(f"it {COMPOSED_OTHERWISE} from {quote_name(name)}, which was chosen", fields.FILE)
        if name and (other := first.setdefault(name, planned)) is not planned:
            planned.add(f"{quote_name(name)} is also the file of row {other.number}", fields.FILE)
    _add_remarks(draft, plan, table)
    _check_columns(draft, plan, table, profile)
    plan.missing = tuple(lacking)
    return plan


def _check_columns(draft: Draft, plan: DraftPlan, table: TableContent, profile: ManifestProfile) -> None:
    """Add problems of the columns. What was chosen for columns of an earlier table does not count."""
    titles = set(map(fields.plain, table.header))
    chosen = {title: name for title, name in draft.columns.items() if fields.plain(title) in titles}
    plan.errors += fields.column_problems(table.header, table.fields, chosen)
    plan.warnings += (
        f"the column {quote_name(title)} is not used"
        for title, name in zip(table.header, table.fields, strict=True)
        if name and not from_csv.is_used(profile, name)
    )


def _corrected(draft: Draft, key: str, values: Mapping[str, str]) -> dict[str, str]:
    """Field -> text, as corrected."""
    given = ((name, draft.values.get(f"{key}:{name}")) for name in from_csv.COLUMNS) if draft.values else ()
    return {**values, **{name: text.strip() for name, text in given if text is not None}}


def _add_remarks(draft: Draft, plan: DraftPlan, table: TableContent) -> None:
    """Add the remarks about cells to their objects, unless the value was corrected."""
    objects = {planned.number: planned for planned in plan.objects}
    for remark in table.remarks:
        name = table.field(remark.column)
        if (planned := objects.get(remark.row)) and name and f"{remark.row}:{name}" not in draft.values:
            planned.add(str(remark), name, error=from_csv.is_error(remark, name))
        elif remark.column < 0:
            plan.warnings.append(str(remark))


def _object(  # noqa: PLR0913 - what is known of an object
    upload: str,
    profile: ManifestProfile,
    key: str,
    number: int,
    files: tuple[DraftFile, ...],
    values: Mapping[str, str],
    findings: Findings | None = None,
    near: tuple[str, ...] = (),
) -> DraftObject:
    """The object, with its values checked as those of a manifest's row."""

    def find(name: str) -> tuple[str, str]:
        if not files:
            raise ValueError(missing(name, "among the chosen files", near))
        return from_csv.VALID, files[0].name if len(files) == 1 else "-"

    findings = findings or Findings()
    row = from_csv.row_of(profile, number, values, findings, find)
    if files and row.url == from_csv.VALID:  # our own address needs no check
        own = UploadAddress(upload, FILES + files[0].name).url if len(files) == 1 else ""
        row = replace(row, url=own, name=row.name if own else "")
    elif problem_of_url := foreign_upload(row.url, UploadAddress(upload).url):
        findings.error(number, problem_of_url, "nfo:fileUrl")
    planned = DraftObject(key, number, row, files)
    for problem in findings.in_order():
        error = problem.severity is Severity.ERROR
        planned.add(problem.message, from_csv.FIELDS.get(problem.column), error=error)
    return planned
