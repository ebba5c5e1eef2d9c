"""The content of a table: its header row, the fields of its columns, its rows of text, and remarks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.errors import UsageRefused
from pipeline.names import quote_name
from pipeline.tables import fields, remarks
from pipeline.tables.remarks import Remark, RemarkKind

CELLS_LIMIT = 1_000_000
"""Maximum cells of a table, up to the last one with text of each row: 50,000 rows of 20 columns."""

ROW_LIMIT = 1 << 20
"""Maximum characters of a row."""

EXACT = 1e15
"""Whole numbers below it have all the digits that a spreadsheet program keeps."""

HEADER_SEARCHED = 50
"""Maximum rows among which the header row is searched."""


class TableFormat(StrEnum):
    TEXT = "text"
    XLSX = "xlsx"
    XLS = "xls"
    ODS = "ods"


class TableUnreadable(UsageRefused):
    """Bytes that are no table, or a choice of a sheet or row that the table does not have."""

    def __init__(self, reason: str, row: int = 0, name: str = "") -> None:
        super().__init__(f"table {quote_name(name)}: {reason}" if name else reason)
        self.reason = reason
        self.row = row
        """The row after which the table cannot be read; 0: the table as a whole."""


@dataclass(frozen=True, slots=True)
class TableRow:
    number: int
    """The row's number as a spreadsheet program shows it, from 1."""
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """The rows that have text, before the header row is known."""

    format: TableFormat
    rows: tuple[TableRow, ...]
    remarks: tuple[Remark, ...] = ()
    encoding: str = ""
    """The encoding of text, such as UTF-8."""
    delimiter: str = ""
    sheets: tuple[str, ...] = ()
    """The names of all sheets of a spreadsheet."""
    name: str = ""


@dataclass(frozen=True)
class Choice:
    """What a person says about a table; all else is recognized."""

    sheet: str = ""
    """Empty: the first sheet."""
    header_row: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """Header -> the name of a field; an empty name leaves the column out."""


NO_CHOICE = Choice()


@dataclass(frozen=True)
class TableContent:
    format: TableFormat
    encoding: str
    delimiter: str
    sheets: tuple[str, ...]
    sheet: str
    header_row: int
    """0: the table has no rows with text."""
    header: tuple[str, ...]
    fields: tuple[str, ...]
    """The field of each column of the header (see pipeline.tables.fields); empty: none is recognized."""
    rows: tuple[TableRow, ...]
    """The rows below the header row; a row may have fewer or more cells than the header."""
    remarks: tuple[Remark, ...]

    def field(self, column: int) -> str:
        return self.fields[column] if 0 <= column < len(self.fields) else ""

    def title(self, column: int) -> str:
        """The column's name in messages: its header, or a letter as in spreadsheet programs."""
        known = self.header[column] if column < len(self.header) else ""
        return known or column_letters(column)


def column_letters(column: int) -> str:
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters


def arrange(sheet: Sheet, choice: Choice = NO_CHOICE) -> TableContent:
    """The sheet with its header row and the fields of its columns."""
    place = _header_place(sheet.rows, choice)
    head = sheet.rows[place] if sheet.rows else TableRow(0, ())
    header, header_row = head.cells, head.number
    mapped = fields.fields_of(header, choice.columns)
    rows = sheet.rows[place + 1 :]
    title_rows = [Remark(RemarkKind.TITLE_ROWS, header_row)] if place else []
    whole = [remark for remark in sheet.remarks if remark.column < 0]
    cells = [remark for remark in sheet.remarks if remark.row > header_row and _concerns(remark, mapped)]
    return TableContent(
        sheet.format,
        sheet.encoding,
        sheet.delimiter,
        sheet.sheets,
        sheet.name,
        header_row,
        header,
        mapped,
        rows,
        (*whole, *title_rows, *cells, *_of_cells(rows, mapped)),
    )


def _concerns(remark: Remark, mapped: Sequence[str]) -> bool:
    """Whether the remark about a cell matters: a number, in a column of identifiers alone."""
    is_id = fields.LOCAL_ID in mapped[remark.column : remark.column + 1]
    return remark.column >= 0 and (is_id or remark.kind is not RemarkKind.NUMBER)


def _header_place(rows: Sequence[TableRow], choice: Choice) -> int:
    """The place of the header row: the one chosen, else the first with the most names of fields.

    If no name is known, it is the first row of several cells: a title has one.
    """
    if choice.header_row is not None:
        for place, row in enumerate(rows):
            if row.number == choice.header_row:
                return place
        raise TableUnreadable(f"row {choice.header_row} has no text: choose the row that names the columns")
    searched = rows[:HEADER_SEARCHED]
    known = [known_names(row.cells, choice.columns) for row in searched]
    if any(known):
        return known.index(max(known))
    return next((place for place, row in enumerate(searched) if sum(map(bool, row.cells)) > 1), 0)


def known_names(cells: Sequence[str], columns: Mapping[str, str]) -> int:
    """How many fields, or columns that a person named, a row of cells names."""
    chosen = set(map(fields.plain, columns))
    return len({fields.field_of(cell) or cell for cell in cells if cell and _names(cell, chosen)})


def _names(cell: str, chosen: set[str]) -> bool:
    return bool(fields.field_of(cell)) or fields.plain(cell) in chosen


def _of_cells(rows: Sequence[TableRow], mapped: Sequence[str]) -> Iterator[Remark]:
    dates = [column for column, name in enumerate(mapped) if name == fields.DATE]
    for row in rows:
        for column, cell in enumerate(row.cells):
            if cell[:1] in remarks.DOUBTFUL and (remark := remarks.of_text(row.number, column, cell)):
                yield remark
        for column in dates:
            if column < len(row.cells) and (remark := remarks.of_date(row.number, column, row.cells[column])):
                yield remark


def format_of(data: bytes) -> TableFormat:
    """The format by the content; TEXT for everything that is no spreadsheet."""
    if data.startswith(b"PK\x03\x04"):
        if data.startswith(b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", 30):
            return TableFormat.ODS
        if b"xl/workbook.xml" in data:
            return TableFormat.XLSX
    elif data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") and "Workbook".encode("utf-16-le") in data:
        return TableFormat.XLS
    return TableFormat.TEXT


def within_limits(rows: Iterable[TableRow]) -> Iterator[TableRow]:
    """The rows, as long as they are a table that a person could look through."""
    cells = 0
    for row in rows:
        cells += len(row.cells)
        if cells > CELLS_LIMIT:
            raise TableUnreadable(f"it has more than {CELLS_LIMIT:,} cells: divide it")
        if sum(map(len, row.cells)) > ROW_LIMIT:
            raise TableUnreadable(f"row {row.number} has more than {ROW_LIMIT:,} characters")
        yield row


def chosen_sheet(names: Sequence[str], choice: str) -> str:
    """The sheet to read; TableUnreadable if there is none of the chosen name."""
    if not names:
        raise TableUnreadable("the file has no sheet of cells")
    if not choice:
        return names[0]
    if choice not in names:
        known = ", ".join(map(quote_name, names))
        raise TableUnreadable(f"there is no sheet {quote_name(choice)}; sheets: {known}")
    return choice
