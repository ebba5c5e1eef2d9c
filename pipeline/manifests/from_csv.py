"""A table in CSV, as spreadsheets write it, turned into a manifest.

Rule: a column is identified by its name, in any order; rows are checked like rows of a manifest, and problems
are reported with the line in the table.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pipeline.errors import ArklineError
from pipeline.manifests import checkm, checkm_row, table_columns
from pipeline.manifests.checkm import ManifestProfile, Problem, Row
from pipeline.manifests.checkm_problems import Findings, StopReading
from pipeline.manifests.table_columns import Column, title_of, titles_of

CELL_LIMIT = 1 << 17
"""Characters of one cell: more than any column may have, so that the column's limit is reported."""

URL_OR_NAME = ("nfo:fileUrl", "nfo:fileName")
"""One of these columns says where the file is, if files of this machine are deposited."""

DELIMITERS = (",", ";", "\t")
"""Delimiters of spreadsheets; they depend on the country."""

_EXAMPLES = {
    "nfo:hashAlgorithm": "sha256",
    "nfo:hashValue": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "mrt:mimeType": "image/jpeg",
    "mrt:localIdentifier": "shelf 12;box 3",
    "mrt:creator": "Seneca, Tracy",
    "mrt:title": "Harbour views",
    "mrt:date": "2009",
}
_EXAMPLE_NAMES = {
    ManifestProfile.OBJECT: "harbour.jpg",
    ManifestProfile.BATCH: "harbour.checkm",
    ManifestProfile.CONTAINER_BATCH: "harbour.zip",
    ManifestProfile.FILE_BATCH: "harbour.jpg",
}
_HINT = re.compile(r'"?sep *= *([,;\t|]|\\t)"?[,;\t| ]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
"""A first line that names the delimiter to Excel; other programs quote it, or add empty cells."""

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Converted:
    """`manifest` is None if a problem is an error; lines are those of the table, from 1."""

    problems: tuple[Problem, ...]
    rows: int
    manifest: bytes | None


def template(profile: ManifestProfile) -> str:
    """The header row of a table for `profile`, and an example row."""
    name = _EXAMPLE_NAMES[profile]
    examples = {**_EXAMPLES, "nfo:fileUrl": f"https://example.org/{name}", "nfo:fileName": name}
    text = io.StringIO()
    columns = [column for column in profile.columns if column != table_columns.NOT_USED]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(title_of(column) for column in columns)
    writer.writerow(examples.get(column, "") for column in columns)
    return text.getvalue()


def convert(
    data: bytes,
    profile: ManifestProfile,
    case_fold: bool = True,
    named: Mapping[str, str] | None = None,
    address: Callable[[str], str] | None = None,
) -> Converted:
    """The table as a manifest, or all problems that prevent it.

    `named`: title of a column -> the manifest's column, where the table has a name that nobody could know.
    `address`: the URL of what the column of URLs or, without one, of names says; ArklineError or ValueError
    says why there is none.
    """
    findings, rows = Findings(), list[Row]()
    with suppress(StopReading):
        rows += _rows(data, profile, named or {}, address, findings)
        if rows:
            checkm.check_rows(profile, rows, case_fold, findings)
        elif not findings.errors:
            findings.error(0, "the table has no rows below its header row")
    manifest = None if findings.errors else checkm.write(profile, rows)
    return Converted(findings.in_order(), len(rows), manifest)


def _rows(
    data: bytes,
    profile: ManifestProfile,
    named: Mapping[str, str],
    address: Callable[[str], str] | None,
    findings: Findings,
) -> Iterator[Row]:
    records = _records(data, findings)
    first = next(records, None)
    if first is None:
        if not findings.errors:
            findings.error(0, f"the table is empty; its first line is the header row {titles_of(profile)}")
        return
    line, titles = first
    url_from = URL_OR_NAME if address else profile.columns[:1]
    columns = table_columns.identify(titles, profile, named, line, findings, url_from)
    if findings.errors:
        return
    for line, cells in records:
        yield _row(profile, columns, line, cells, address, findings)


def _records(data: bytes, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """The records that are not empty: the number of the first line, and the cells."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        findings.error(line, "the table is not UTF-8; save it as 'CSV UTF-8'")
        return
    hint = _HINT.match(text)
    delimiter = hint[1].replace("\\t", "\t") if hint else _delimiter(text)
    csv.field_size_limit(CELL_LIMIT)
    table = io.StringIO(text[hint.end() :] if hint else text, newline="")
    reader = csv.reader(table, delimiter=delimiter, strict=True)
    before = 1 if hint else 0
    start = before + 1
    try:
        for record in reader:
            if any(cells := [cell.strip() for cell in record]):
                yield start, cells
            start = before + reader.line_num + 1
    except csv.Error as error:
        findings.error(start, f"the table cannot be read after this line: {error}; check the quotation marks")


def _delimiter(text: str) -> str:
    """The delimiter that the header row has most of, outside quotes; the row may go over several lines.

    Rows without text may stand before it.
    """
    unquoted = _QUOTED.sub("x", text)
    lines = io.StringIO(unquoted, newline=None)
    head = next((line for line in lines if line.strip(",; \t\n")), "")
    return max(DELIMITERS, key=head.count)


def _row(
    profile: ManifestProfile,
    columns: tuple[Column, ...],
    line: int,
    cells: list[str],
    address: Callable[[str], str] | None,
    findings: Findings,
) -> Row:
    if any(cells[len(columns) :]):
        findings.error(
            line, f"the row has more cells than the {len(columns)} columns; quote texts that contain a comma"
        )
    if any(cell and not column.titled for column, cell in zip(columns, cells, strict=False)):
        findings.warn(line, "a text below an empty title of a column is not used")
    given = table_columns.values(columns, cells)
    for column, value in given.items():
        if _CONTROL.search(value):
            findings.error(line, f"{title_of(column)} contains a line break or a control character")
    values = {column: given.get(column, "") for column in profile.columns}
    url = values.pop(profile.columns[0])
    before = len(findings.errors)
    if address is not None:
        try:
            url = address(url or values["nfo:fileName"])
        except (ArklineError, ValueError) as error:
            findings.error(line, str(error))
            return Row(line, url, values["nfo:fileName"])
    row = checkm_row.of_cells(profile, url, values, line, findings)
    if len(findings.errors) == before and not _reads_back(profile, row):
        findings.error(line, "the row would not read back from a manifest as it is")
    return row


def _reads_back(profile: ManifestProfile, row: Row) -> bool:
    written = checkm_row.write(profile, row, percent=True)
    return checkm_row.read(profile, written, row.line, Findings(), percent=True) == row
