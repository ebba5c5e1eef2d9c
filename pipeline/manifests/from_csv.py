"""Conversion of a CSV table, as spreadsheets write it, into a manifest.

Rule: columns are identified by name, in any order; rows are checked like rows of a manifest, and problems
are reported with the line of the table.
"""

import csv
import difflib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pipeline.errors import ArklineError
from pipeline.fixity import HEX_LENGTH
from pipeline.manifests import checkm, checkm_row
from pipeline.manifests.checkm import ManifestProfile, Problem, Row
from pipeline.manifests.checkm_row import Findings, StopReading
from pipeline.names import quote_name

NOT_USED = "nfo:fileLastModified"
"""A column of manifests that Merritt does not use."""

_ALGORITHM, _DIGEST = "nfo:hashAlgorithm", "nfo:hashValue"
_USUAL_NAMES = {
    "nfo:fileUrl": ("url", "uri", "link", "address", "location"),
    _ALGORITHM: ("algorithm", "digestalgorithm", "checksumalgorithm", "checksumtype"),
    _DIGEST: ("digest", "checksum", "hash"),
    "nfo:fileSize": ("size", "bytes"),
    "nfo:fileName": ("name", "path", "file"),
    "mrt:mimeType": ("mime", "contenttype", "mediatype"),
    "mrt:primaryIdentifier": ("ark",),
    "mrt:localIdentifier": ("localid", "id", "identifier", "callnumber", "shelfmark"),
    "mrt:creator": ("author", "artist", "who"),
    "mrt:title": ("what",),
    "mrt:date": ("year", "when"),
}


@dataclass(frozen=True)
class Column:
    """A column of the table, mapped to a column of the manifest."""

    name: str = ""
    """The manifest's column; empty: the table's column is left out."""
    algorithm: str = ""
    """The algorithm, for a column of digests that is named after it, such as MD5."""
    titled: bool = True


def identify(
    titles: Sequence[str],
    profile: ManifestProfile,
    named: Mapping[str, str],
    line: int,
    findings: Findings,
    url_from: Sequence[str],
) -> tuple[Column, ...]:
    """Map the header row `titles` to columns, in order; problems are added to `findings`.

    `named`: title -> the manifest's column, as given by a person; an empty name leaves the column out.
    `url_from`: columns, at least one of which is required.
    """
    known = _known(profile)
    chosen = {plain(title): name for title, name in named.items()}
    for title in named:
        if plain(title) not in map(plain, titles):
            findings.error(line, f"the table has no column {quote_name(title)}")
    columns: list[Column] = []
    for title in titles:
        asked = chosen.get(plain(title), title)
        column = known.get(plain(asked), Column(titled=bool(title)))
        if asked and not column.name:
            findings.error(line, _unknown(asked, profile, known))
        if column.name and (earlier := _place(column, columns)) is not None:
            findings.error(line, _twice(column, titles[earlier], title))
        columns.append(column)
    names = [column.name for column in columns]
    if not set(url_from) & set(names) and not findings.errors:
        findings.error(line, f"column {' or '.join(map(title_of, url_from))} is missing")
    if NOT_USED in names:
        findings.warn(line, f"column {title_of(NOT_USED)} is not used")
    return tuple(columns)


def row_values(columns: Sequence[Column], cells: Sequence[str]) -> dict[str, str]:
    """Column of the manifest -> cell; a digest in a column such as MD5 gets that algorithm."""
    given: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=False):
        if column.name:
            given[column.name] = cell
        if column.algorithm and cell:
            given[_ALGORITHM] = column.algorithm
    return given


def titles_of(profile: ManifestProfile) -> str:
    return ", ".join(title_of(column) for column in profile.columns if column != NOT_USED)


def title_of(column: str) -> str:
    return column.partition(":")[2]


def plain(title: str) -> str:
    """Normalize a title: `nfo:fileUrl`, `File URL` and `file_url` are the same column."""
    return re.sub(r"[\s_-]", "", title.lower()).rpartition(":")[2]


def _known(profile: ManifestProfile) -> dict[str, Column]:
    names = {plain(column): Column(column) for column in profile.columns}
    usual = {
        usual: Column(name)
        for name, several in _USUAL_NAMES.items()
        for usual in several
        if name in profile.columns
    }
    return {**usual, **{plain(name): Column(_DIGEST, name) for name in HEX_LENGTH}, **names}


def _place(column: Column, columns: Sequence[Column]) -> int | None:
    same = (place for place, earlier in enumerate(columns) if earlier.name == column.name)
    return next(same, None)


def _twice(column: Column, first: str, second: str) -> str:
    name = title_of(column.name)
    if plain(first) == plain(second):
        return f"column {name} is there twice"
    return (
        f"{quote_name(first)} and {quote_name(second)} are both the column {name}: leave one of them out "
        f"(--column {quote_name(second + '=')})"
    )


def _unknown(title: str, profile: ManifestProfile, known: Mapping[str, Column]) -> str:
    near = difflib.get_close_matches(plain(title), known, 1)
    meant = f"did you mean {title_of(known[near[0]].name)}?" if near else f"columns: {titles_of(profile)}"
    noun = profile.submission_type.label
    return f"{quote_name(title)} is not a column of {'an' if noun[0] in 'aeiou' else 'a'} {noun}; {meant}"


CELL_LIMIT = 1 << 17
"""Maximum characters of a cell: more than any column may have, so that the column's limit is reported."""

URL_OR_NAME = ("nfo:fileUrl", "nfo:fileName")
"""The columns, one of which locates the file if local files are deposited."""

DELIMITERS = (",", ";", "\t")
"""Delimiters that spreadsheets use, depending on the country."""

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
"""A first line that tells Excel the delimiter; other programs quote it or append empty cells."""

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Converted:
    """A converted table; `manifest` is None if a problem is an error. Lines are the table's, from 1."""

    problems: tuple[Problem, ...]
    rows: int
    manifest: bytes | None


def template(profile: ManifestProfile) -> str:
    """The header row of a table for `profile`, with an example row."""
    name = _EXAMPLE_NAMES[profile]
    examples = {**_EXAMPLES, "nfo:fileUrl": f"https://example.org/{name}", "nfo:fileName": name}
    text = io.StringIO()
    columns = [column for column in profile.columns if column != NOT_USED]
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
    """Convert the table to a manifest, or report all problems that prevent it.

    `named`: title -> the manifest's column, for titles that cannot be recognized.
    `address`: maps a cell of the URL column or, if that is empty, of the name column to a URL; raises
    ArklineError or ValueError with the reason if there is none.
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
    columns = identify(titles, profile, named, line, findings, url_from)
    if findings.errors:
        return
    for line, cells in records:
        yield _row(profile, columns, line, cells, address, findings)


def _records(data: bytes, findings: Findings) -> Iterator[tuple[int, list[str]]]:
    """The non-empty records: number of the first line, and cells."""
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
    """The most frequent delimiter of the header row, outside quotes; the row may span several lines.

    Rows without text may precede the header row.
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
    given = row_values(columns, cells)
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
