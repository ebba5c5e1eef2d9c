"""What a draft would deposit: its objects, each with its row of the manifest, its files and its problems.

Rule: a plan depends on the draft, its table and the collection's profile alone. Whether files have arrived,
and what the repository has already, is judged later.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from operations.deposits.local_deposit import FILES, similar
from operations.deposits.planned import FieldProblem
from pipeline.manifests import checkm_row
from pipeline.manifests.checkm import ManifestProfile, Row, Severity, repeated_identifiers
from pipeline.manifests.checkm_row import Findings
from pipeline.names import (
    COMPOSED_OTHERWISE,
    UnsafeName,
    UploadAddress,
    duplicates,
    foreign_upload,
    is_container,
    is_local,
    is_system_file,
    quote_name,
    safe_name,
)
from pipeline.records import Record, SubmissionType
from pipeline.uploads.draft import Draft, DraftFile, Objects

COLUMNS = {
    "url": "nfo:fileUrl",
    "file": "nfo:fileName",
    "algorithm": "nfo:hashAlgorithm",
    "digest": "nfo:hashValue",
    "size": "nfo:fileSize",
    "mime_type": "mrt:mimeType",
    "ark": "mrt:primaryIdentifier",
    "local_id": "mrt:localIdentifier",
    "creator": "mrt:creator",
    "title": "mrt:title",
    "date": "mrt:date",
}
"""Field of a draft -> column of the manifest."""

ONE_OBJECT = "0"
"""The key of the object if all files become one."""

NEAR = 3
"""Maximum names suggested for a missing one."""

COMPARED = 200_000
"""Maximum names compared for all missing files of a draft together, in about a second; those that differ in
case, composition, folder or suffix alone are found without."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class MissingFile(Record):
    """A file that the table names and that was not chosen; `near`: chosen files with similar names."""

    key: str
    name: str
    near: tuple[str, ...] = ()


@dataclass
class DraftObject:
    """One object that would be made."""

    key: str
    """What its corrections begin with: the table's row, the file's name, or ONE_OBJECT."""
    number: int
    """The table's row; else its place, from 1, or 0 if it is the only object."""
    row: Row
    """Its description and, unless it is of several files, its payload."""
    files: tuple[DraftFile, ...] = ()
    errors: list[FieldProblem] = field(default_factory=list)
    warnings: list[FieldProblem] = field(default_factory=list)

    def error(self, message: str, field: str | None = None) -> None:
        self.errors.append(FieldProblem(field=field, message=message))

    def warn(self, message: str, field: str | None = None) -> None:
        self.warnings.append(FieldProblem(field=field, message=message))


@dataclass(frozen=True)
class TableRow:
    number: int
    values: Mapping[str, str]
    """Field -> text."""
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()


@dataclass
class DraftPlan:
    type: SubmissionType
    objects: list[DraftObject]
    left_out: tuple[str, ...]
    """Files that an operating system or a program made for itself."""
    unlisted: tuple[str, ...] = ()
    missing: tuple[MissingFile, ...] = ()
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def profile(self) -> ManifestProfile | None:
        """The manifest that the deposit needs; None if its payload is one file."""
        return next((known for known in ManifestProfile if known.submission_type is self.type), None)


def plan_draft(upload: str, draft: Draft, rows: Iterable[TableRow], *, case_fold: bool) -> DraftPlan:
    """The plan; `rows`: those of the table."""
    left_out = tuple(file.name for file in draft.files if is_system_file(file.name))
    files = {file.name: file for file in draft.files if file.name != draft.table}
    for name in left_out:
        files.pop(name, None)
    planner = _Planner(upload, draft, files)
    if draft.objects is Objects.ONE:
        plan = planner.one(case_fold=case_fold)
    elif draft.objects is Objects.EACH:
        plan = planner.each()
    else:
        plan = planner.table(rows)
    plan.left_out = left_out
    if len(files) + len(left_out) < len(draft.files) - (draft.table is not None):
        plan.errors.append("a file is listed twice: choose the files again")
    if not plan.objects and not plan.errors:
        plan.errors.append("there is nothing to deposit: choose files, or a table with rows")
    return plan


class _Planner:
    def __init__(self, upload: str, draft: Draft, files: dict[str, DraftFile]) -> None:
        self._upload = upload
        self._draft = draft
        self._files = files

    def one(self, *, case_fold: bool) -> DraftPlan:
        kind = SubmissionType.OBJECT_MANIFEST
        sole = next(iter(self._files), "") if len(self._files) == 1 else ""
        if sole and "/" not in sole:
            kind = SubmissionType.CONTAINER if is_container(sole) else SubmissionType.FILE
        files = tuple(self._files.values())
        only = self._object(ManifestProfile.FILE_BATCH, ONE_OBJECT, 0, files, self._corrected(ONE_OBJECT, {}))
        for file in files:
            _check_name(only, file.name)
        for clash in duplicates(self._files, case_fold):
            only.error(f"{clash.reason}: rename one of them", "file")
        return DraftPlan(kind, [only] if files else [], ())

    def each(self) -> DraftPlan:
        profile = _manifest_of(self._files)
        objects = [
            self._object(profile, name, number, (file,), self._corrected(name, {}))
            for number, (name, file) in enumerate(self._files.items(), 1)
        ]
        for planned in objects:
            _check_name(planned, planned.key)
        _check_repeated(objects)
        return DraftPlan(profile.submission_type, objects, ())

    def table(self, rows: Iterable[TableRow]) -> DraftPlan:
        listed = [(row, self._corrected(str(row.number), row.values)) for row in rows]
        names = [values.get("url") or values.get("file", "") for _, values in listed]
        profile = _manifest_of(names)
        chosen = ChosenFiles(self._files)
        taken: dict[str, DraftObject] = {}
        objects, missing = [], []
        for (row, values), text in zip(listed, names, strict=True):
            named = PurePosixPath(text).as_posix() if text and is_local(text) else ""
            name = chosen.find(named)
            files = (self._files[name],) if name else ()
            planned = self._object(profile, str(row.number), row.number, files, values)
            planned.errors[:0] = row.errors
            planned.warnings[:0] = row.warnings
            objects.append(planned)
            if not text:
                planned.error("the row names no file", "file")
            elif named and not name:
                near = chosen.near(named)
                missing.append(MissingFile(key=planned.key, name=named, near=near))
                meant = f"; did you mean {' or '.join(map(quote_name, near))}?" if near else ""
                planned.error(f"there is no file {quote_name(named)} among the chosen files{meant}", "file")
            elif name != named:
                planned.warn(
                    f"{quote_name(named)} {COMPOSED_OTHERWISE} from {quote_name(name)}, which was chosen",
                    "file",
                )
            if name and (first := taken.setdefault(name, planned)) is not planned:
                planned.error(f"{quote_name(name)} is also the file of row {first.number}", "file")
        _check_repeated(objects)
        unlisted = tuple(name for name in self._files if name not in taken)
        return DraftPlan(profile.submission_type, objects, (), unlisted, tuple(missing))

    def _corrected(self, key: str, values: Mapping[str, str]) -> dict[str, str]:
        """The values with the depositor's corrections."""
        corrected = {
            field: text for field in COLUMNS if (text := self._draft.values.get(f"{key}:{field}")) is not None
        }
        return {**values, **{field: text.strip() for field, text in corrected.items()}}

    def _object(
        self,
        profile: ManifestProfile,
        key: str,
        number: int,
        files: tuple[DraftFile, ...],
        values: Mapping[str, str],
    ) -> DraftObject:
        """The object with its values checked like those of a manifest's row."""
        cells = {column: values.get(name, "") for name, column in COLUMNS.items()}
        url = cells.pop(COLUMNS["url"])
        if len(files) == 1 and not (url and not is_local(url)):
            url = UploadAddress(self._upload, FILES + files[0].name).url
            cells[COLUMNS["file"]] = files[0].name
        findings = Findings()
        known = url or UploadAddress(self._upload, "x").url  # what it lacks is said elsewhere
        row = checkm_row.of_cells(profile, known, cells, number, findings)
        planned = DraftObject(key, number, replace(row, url=url), files)
        for problem in findings.in_order():
            (planned.error if problem.severity is Severity.ERROR else planned.warn)(problem.message)
        for name, column in COLUMNS.items():
            if _CONTROL.search(cells.get(column, "")):
                planned.error("it contains a line break or a control character", name)
        if url and (problem_of_url := foreign_upload(url, UploadAddress(self._upload).url)):
            planned.error(problem_of_url, "url")
        return planned


def _manifest_of(names: Iterable[str]) -> ManifestProfile:
    """Containers make objects of their content if all payloads are containers, as in a local deposit."""
    given = [name for name in names if name]
    return (
        ManifestProfile.CONTAINER_BATCH
        if given and all(map(is_container, given))
        else ManifestProfile.FILE_BATCH
    )


def _check_name(planned: DraftObject, name: str) -> None:
    try:
        safe_name(name, FILES)
    except UnsafeName as error:
        planned.error(f"{error}: rename it", "file")


def _check_repeated(objects: Iterable[DraftObject]) -> None:
    """Two objects of a deposit with one identifier would become versions of each other."""
    lines: dict[tuple[str, str], int] = {}
    for planned in objects:
        row = planned.row
        for local_id, ark, name in ((row.local_id, None, "local_id"), ((), row.primary_id, "ark")):
            for message in repeated_identifiers(local_id, ark, row.line, lines):
                planned.error(message, name)


class ChosenFiles:
    """The names of the chosen files, found as a table writes them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._composed = {unicodedata.normalize("NFC", name): name for name in self._names}
        self._alike: dict[str, list[str]] = {}
        for name in self._names:
            for alike in dict.fromkeys(_alike(name)):
                self._alike.setdefault(alike, []).append(name)
        self._compared = 0

    def find(self, name: str) -> str:
        """The chosen file of this name, whatever its Unicode composition; empty if there is none."""
        return name if name in self._names else self._composed.get(unicodedata.normalize("NFC", name), "")

    def near(self, name: str) -> tuple[str, ...]:
        """The chosen files that `name` probably means."""
        for alike in _alike(name):
            if alike in self._alike:
                return tuple(self._alike[alike][:NEAR])
        self._compared += len(self._names)
        if self._compared > COMPARED:
            return ()
        return similar(name, self._names, NEAR)


def _alike(name: str) -> Iterator[str]:
    """What a name has in common with names that may mean the same file, the most telling first."""
    spelled = unicodedata.normalize("NFC", name.replace("\\", "/")).casefold()
    path = PurePosixPath(spelled)
    yield spelled
    yield f"/{path.name}"
    yield f"/{path.stem}."
