"""Conversion of a table into a manifest.

Rule: columns are identified by name, in any order; rows are checked like rows of a manifest, and problems
are reported with the row of the table. Every way of depositing a table makes its rows with `row_of`.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pipeline.errors import ArklineError
from pipeline.fixity import HEX_LENGTH
from pipeline.manifests import checkm, checkm_row
from pipeline.manifests.checkm import ManifestProfile, Problem, Row, Severity
from pipeline.manifests.checkm_row import TEXT_LIMIT, Findings, StopReading
from pipeline.names import is_container, is_local, name_in, quote_name
from pipeline.tables import fields
from pipeline.tables.content import TableContent, TableRow
from pipeline.tables.remarks import Remark, RemarkKind, summaries

COLUMNS = {
    fields.FILE: "nfo:fileName",
    fields.URL: "nfo:fileUrl",
    fields.ALGORITHM: "nfo:hashAlgorithm",
    fields.DIGEST: "nfo:hashValue",
    fields.SIZE: "nfo:fileSize",
    fields.MODIFIED: "nfo:fileLastModified",
    fields.MIME_TYPE: "mrt:mimeType",
    fields.ARK: "mrt:primaryIdentifier",
    fields.LOCAL_ID: "mrt:localIdentifier",
    fields.CREATOR: "mrt:creator",
    fields.TITLE: "mrt:title",
    fields.DATE: "mrt:date",
}
"""Field of a table -> column of a manifest; Merritt does not use the time of the last modification."""

FIELDS = {column: field for field, column in COLUMNS.items()}

FindFile = Callable[[str], tuple[str, str]]
"""Local name -> the file's address in the upload, and its name; ValueError with the reason if it has none."""

_EXAMPLES = {
    fields.ALGORITHM: "sha256",
    fields.DIGEST: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    fields.MIME_TYPE: "image/jpeg",
    fields.LOCAL_ID: "shelf 12;box 3",
    fields.CREATOR: "Seneca, Tracy",
    fields.TITLE: "Harbour views",
    fields.DATE: "2009",
}
_EXAMPLE_NAMES = {
    ManifestProfile.OBJECT: "harbour.jpg",
    ManifestProfile.BATCH: "harbour.checkm",
    ManifestProfile.CONTAINER_BATCH: "harbour.zip",
    ManifestProfile.FILE_BATCH: "harbour.jpg",
}
_IDENTIFYING = frozenset({fields.URL, fields.FILE, fields.ARK, fields.LOCAL_ID})
"""Fields in which no error of a spreadsheet can be meant."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
VALID = "http://localhost/-"
"""A valid URL, for a row whose payload is an error already, or needs no check."""


@dataclass(frozen=True)
class Converted:
    """A converted table: a manifest's rows, whose lines are rows of the table."""

    profile: ManifestProfile
    problems: tuple[Problem, ...]
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    """What the depositor should look at in the table; also among the problems, as warnings."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    def manifest(self) -> bytes | None:
        """None if a problem is an error."""
        return None if self.errors else checkm.write(self.profile, self.rows)


def template(profile: ManifestProfile) -> str:
    """The header row of a table for `profile`, with an example row."""
    name = _EXAMPLE_NAMES[profile]
    examples = {**_EXAMPLES, fields.URL: f"https://example.org/{name}", fields.FILE: name}
    text = io.StringIO()
    names = _fields_of(profile)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields.LABELS[field] for field in names)
    writer.writerow(examples.get(field, "") for field in names)
    return text.getvalue()


def batch_profile(table: TableContent) -> ManifestProfile:
    """What the rows are by default: an object each, of a container if all of them name containers."""
    return payload_profile(values_of(table, row) for row in table.rows)


def payload_profile(rows: Iterable[Mapping[str, str]]) -> ManifestProfile:
    """Payloads are unpacked if all of these rows name containers: by the file, or else by the URL."""
    names = [values.get(fields.FILE) or name_in(values.get(fields.URL, "")) for values in rows]
    packed = bool(names) and all(map(is_container, names))
    return ManifestProfile.CONTAINER_BATCH if packed else ManifestProfile.FILE_BATCH


def convert(
    table: TableContent,
    profile: ManifestProfile,
    case_fold: bool = True,
    named: Mapping[str, str] | None = None,
    find: FindFile | None = None,
) -> Converted:
    """Convert the table to rows of a manifest, with all problems that prevent it.

    `named`: the columns that a person named, as in the choice with which the table was read.
    `find`: for a table that may name local files; else each row needs a URL.
    """
    findings, rows, remarks = Findings(), list[Row](), list[str]()
    with suppress(StopReading):
        if not table.header:
            findings.stop(0, f"the table is empty; its first row names the columns {_labels(profile)}")
        _check_columns(table, profile, named or {}, findings, url_needed=find is None)
        remarks += _remark(table, findings)
        if not findings.errors:
            for row in table.rows:
                check_cells(table, row, findings)
                before = len(findings.errors)
                rows.append(row_of(profile, row.number, values_of(table, row), findings, find))
                if len(findings.errors) == before and not _reads_back(profile, rows[-1]):
                    findings.error(row.number, "the row would not read back from a manifest as it is")
        if rows:
            checkm.check_rows(profile, rows, case_fold, findings, called="rows")
        elif not findings.errors:
            findings.error(0, "the table has no rows below its header row")
    problems = tuple(replace(one, called="row") for one in findings.in_order())
    return Converted(profile, problems, tuple(rows), tuple(remarks))


def _fields_of(profile: ManifestProfile) -> tuple[str, ...]:
    """The fields that a manifest of this profile has, and that are used."""
    return tuple(
        name for name, column in COLUMNS.items() if column in profile.columns and name != fields.MODIFIED
    )


def _labels(profile: ManifestProfile) -> str:
    return ", ".join(fields.LABELS[field] for field in _fields_of(profile))


def _check_columns(
    table: TableContent,
    profile: ManifestProfile,
    named: Mapping[str, str],
    findings: Findings,
    *,
    url_needed: bool,
) -> None:
    """Report columns that are unknown, double, missing, or of no use for this kind of manifest."""
    row = table.header_row
    left_out = {fields.plain(title) for title, name in named.items() if not name}
    for problem in fields.column_problems(table.header, table.fields, named):
        findings.error(row, problem)
    for title, field in zip(table.header, table.fields, strict=True):
        if field and _column(field) not in profile.columns:
            findings.error(row, f"{_not_a_column(title, profile)}; columns: {_labels(profile)}")
        elif title and not field and fields.plain(title) not in left_out:
            meant = fields.nearest(title)
            hint = f"did you mean {fields.LABELS[meant]}?" if meant else f"columns: {_labels(profile)};"
            given = quote_name(f"{title}={fields.LABELS[meant] if meant else ''}")
            hint = f"{hint} rename it, or add --column {given}{'' if meant else ', which leaves it out'}"
            findings.error(row, f"{_not_a_column(title, profile)}; {hint}")
    needed = (fields.URL,) if url_needed else (fields.URL, fields.FILE)
    if not set(needed) & set(table.fields) and not findings.errors:
        findings.error(row, f"column {' or '.join(fields.LABELS[field] for field in needed)} is missing")
    if fields.MODIFIED in table.fields:
        findings.warn(row, f"column {fields.LABELS[fields.MODIFIED]} is not used")


def _not_a_column(title: str, profile: ManifestProfile) -> str:
    noun = profile.submission_type.label
    return f"{quote_name(title)} is not a column of {'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _column(field: str) -> str:
    return COLUMNS[fields.DIGEST if field in HEX_LENGTH else field]


def is_used(profile: ManifestProfile, field: str) -> bool:
    return field != fields.MODIFIED and _column(field) in profile.columns


def _remark(table: TableContent, findings: Findings) -> Iterator[str]:
    """Report the remarks about the table and its columns that are used; yields those that are warnings."""
    warnings = list[Remark]()
    for remark in table.remarks:
        field = table.field(remark.column)
        if is_error(remark, field):
            findings.error(remark.row, f"column {quote_name(table.title(remark.column))}: {remark}")
        elif field or remark.column < 0:
            warnings.append(remark)
    for row, sentence in summaries(warnings, table.title):
        findings.warn(row, sentence)
        yield str(Problem(row, sentence, called="row"))


def is_error(remark: Remark, field: str) -> bool:
    """Whether a remark about a cell of this field prevents the deposit."""
    if remark.kind is RemarkKind.INEXACT:
        return field in (fields.ARK, fields.LOCAL_ID)
    return remark.kind in (RemarkKind.ERROR, RemarkKind.NO_VALUE) and field in _IDENTIFYING


def values_of(table: TableContent, row: TableRow) -> dict[str, str]:
    """Field -> cell; a digest in a column such as MD5 has that algorithm."""
    values: dict[str, str] = {}
    for field, cell in zip(table.fields, row.cells, strict=False):
        if field in HEX_LENGTH:
            values |= {fields.DIGEST: cell, fields.ALGORITHM: field} if cell else {}
        elif field:
            values[field] = cell
    return values


def row_of(
    profile: ManifestProfile,
    number: int,
    values: Mapping[str, str],
    findings: Findings,
    find: FindFile | None = None,
) -> Row:
    """The row of these values (field -> text); a problem's column is one of COLUMNS.

    `find`: as for `convert`. A row whose payload is an error has neither URL nor name.
    """
    given = {column: values.get(field, "") for field, column in COLUMNS.items() if column in profile.columns}
    for column, text in given.items():
        if _CONTROL.search(text):
            message = f"{_label(column)} contains a line break or a control character"
            findings.error(number, message, column)
        if len(text) > TEXT_LIMIT and column != "nfo:fileUrl":
            findings.error(number, f"{_label(column)} is longer than {TEXT_LIMIT:,} characters", column)
            given[column] = ""
    url, problem = given.pop("nfo:fileUrl"), ""
    is_file = find is not None and is_local(url)
    try:
        url, given["nfo:fileName"] = _payload(url, given["nfo:fileName"], find)
    except (ArklineError, ValueError) as error:
        url, given["nfo:fileName"], problem = VALID, "", str(error)
    row = checkm_row.of_cells(profile, url, given, number, findings)
    if problem:
        findings.error(number, problem, "nfo:fileName" if is_file else "nfo:fileUrl")
        return replace(row, url="", name="")
    return row


def _label(column: str) -> str:
    return fields.LABELS[FIELDS[column]]


def _payload(url: str, file: str, find: FindFile | None) -> tuple[str, str]:
    """The URL and the name of the payload: that in the file's column, unless the column names the payload."""
    if find is None and not url:
        raise ValueError("the row names no URL")
    given = url or file
    if find is None or not is_local(given):
        return url or file, file
    if not given:
        raise ValueError("the row names no file")
    address, name = find(given)
    return address, (file if url else "") or name


def check_cells(table: TableContent, row: TableRow, findings: Findings) -> None:
    """Report cells that belong to no column. In a text, they come from a delimiter that is not quoted."""
    width = len(table.header)
    beyond = any(row.cells[width:])
    if beyond and table.delimiter:
        findings.error(
            row.number,
            f"the row has more cells than the {width} columns; quote texts that contain the delimiter",
        )
    elif beyond or any(cell and not title for title, cell in zip(table.header, row.cells, strict=False)):
        findings.warn(row.number, "a text below an empty title of a column is not used")


def _reads_back(profile: ManifestProfile, row: Row) -> bool:
    written = checkm_row.write(profile, row, percent=True)
    return checkm_row.read(profile, written, row.line, Findings(), percent=True) == row
