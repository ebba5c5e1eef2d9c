"""Spreadsheets (XLSX, XLS, ODS): read by a library in the decoding process, since their bytes are foreign."""

import io
import zlib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from python_calamine import (
    CalamineError,
    PasswordError,
    SheetTypeEnum,
    SheetVisibleEnum,
    load_workbook,
)

from pipeline.tables import sheet_xml
from pipeline.tables.content import (
    EXACT,
    Sheet,
    TableFormat,
    TableRow,
    TableUnreadable,
    chosen_sheet,
    within_limits,
)
from pipeline.tables.remarks import Remark, RemarkKind

UNPACKED_LIMIT = 200_000_000
"""Maximum bytes that a spreadsheet says it unpacks to; a table of 100,000 rows has a tenth of it."""

_DAMAGED = (
    CalamineError,
    BadZipFile,
    ParseError,
    zlib.error,
    EOFError,
    LookupError,
    ValueError,
    RuntimeError,
)

_AS_TEXT = (RemarkKind.ERROR, RemarkKind.SHOWN)
"""Remarks whose text is that of the cell, in place of the library's value."""

_DATE_LENGTHS = {"month": 7, "year": 4}
"""Characters of an ISO date up to this part."""

_OF_TEXT = (*_AS_TEXT, RemarkKind.DATE_PART)
"""Remarks that decide on a cell's text, and are not for people."""

_Value = int | float | str | bool | time | date | datetime | timedelta


def read_sheet(data: bytes, kind: TableFormat, choice: str = "") -> Sheet:
    """The rows of one sheet: the chosen one, or the first that is visible."""
    try:
        return _read(data, kind, choice)
    except PasswordError as error:
        raise TableUnreadable("it is protected by a password: save it without one") from error
    except BaseException as error:
        # a panic of the library is no Exception, and its class cannot be imported
        if not isinstance(error, _DAMAGED) and type(error).__name__ != "PanicException":
            raise
        raise TableUnreadable(
            f"it cannot be read ({error}): copy the list into a new spreadsheet, or save it as 'CSV UTF-8'"
        ) from error


def _read(data: bytes, kind: TableFormat, choice: str) -> Sheet:
    if kind is not TableFormat.XLS:
        _check_size(data)
    with load_workbook(io.BytesIO(data)) as book:
        listed = [sheet for sheet in book.sheets_metadata if sheet.typ is SheetTypeEnum.WorkSheet]
        visible = [sheet.name for sheet in listed if sheet.visible is SheetVisibleEnum.Visible]
        names = tuple(sheet.name for sheet in listed)
        name = chosen_sheet(names, choice or next(iter(visible), ""))
        sheet = book.get_sheet_by_name(name)
        ranges = sheet.merged_cell_ranges or ()
        values = sheet.to_python(skip_empty_area=False)
    above = [Remark(RemarkKind.FORMULAS_UNKNOWN, text=kind)] if kind is TableFormat.XLS else []
    if len(names) > 1 and not choice:
        above.append(Remark(RemarkKind.OTHER_SHEETS, text=name))
    cells = [sheet_xml.merged((first[0] + 1, first[1]), (last[0] + 1, last[1])) for first, last in ranges]
    if kind is not TableFormat.XLS:
        with ZipFile(io.BytesIO(data)) as archive:
            cells += sheet_xml.cell_remarks(archive, kind, name)
    rows = {row.number: row for row in within_limits(_rows(values, cells))}
    above += (_with_value(remark, rows) for remark in cells if remark.kind not in _OF_TEXT)
    above += _numbers(values, cells)
    return Sheet(kind, tuple(rows.values()), tuple(above), sheets=names, name=name)


def _check_size(data: bytes) -> None:
    with ZipFile(io.BytesIO(data)) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > UNPACKED_LIMIT:
        raise TableUnreadable(
            f"it would unpack to {size:,} bytes, more than {UNPACKED_LIMIT:,}: copy the rows and columns of "
            "the list into a new spreadsheet"
        )


def _rows(values: list[list[_Value]], cells: list[Remark]) -> Iterator[TableRow]:
    """The rows with text: of an error, for which the library gives nothing or 0, and as numbers and dates are
    shown."""
    shown: dict[int, dict[int, str]] = {}
    for remark in cells:
        text_of = remark.text if remark.kind in _AS_TEXT else _part_of_date(values, remark)
        if text_of:
            shown.setdefault(remark.row, {})[remark.column] = text_of
    for number, row in enumerate(values, 1):
        if number not in shown and row.count("") == len(row):
            continue
        texts = [text(value) for value in row]
        for column, instead in shown.get(number, {}).items():
            if column < len(texts):
                texts[column] = instead
        while texts and not texts[-1]:
            del texts[-1]
        if texts:
            yield TableRow(number, tuple(texts))


def _part_of_date(values: list[list[_Value]], remark: Remark) -> str:
    """What a cell shows of its date; empty if the remark is not about that."""
    inside = remark.row <= len(values) and remark.column < len(values[remark.row - 1])
    value = values[remark.row - 1][remark.column] if inside else ""
    if remark.kind is not RemarkKind.DATE_PART or not isinstance(value, date):
        return ""
    return value.isoformat()[: _DATE_LENGTHS[remark.text]]


def _numbers(values: list[list[_Value]], cells: list[Remark]) -> Iterator[Remark]:
    """Numbers whose last digits may be lost, and the shortest other number of each column whose numbers
    differ in length: they may be shown equally long."""
    known = {(remark.row, remark.column) for remark in cells if remark.kind in _AS_TEXT}
    for place, column in enumerate(zip(*values, strict=True)):
        numbers = (
            (cell, row)
            for row, cell in enumerate(column, 1)
            if isinstance(cell, int | float) and not isinstance(cell, bool) and (row, place) not in known
        )
        sound = list[tuple[str, int]]()
        for number, row in numbers:
            if abs(number) < EXACT:
                sound.append((text(number), row))
            else:
                yield Remark(RemarkKind.INEXACT, row, place, text(number))
        shortest, row = min(sound, key=lambda one: len(one[0]), default=("", 0))
        if any(len(shortest) < len(digits) for digits, _ in sound):
            yield Remark(RemarkKind.NUMBER, row, place, shortest)


def text(value: _Value) -> str:
    """The value as text: dates in ISO 8601, whole numbers without a point."""
    match value:
        case str():
            return value.strip()
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
        case _:
            return str(value)


def _with_value(remark: Remark, rows: Mapping[int, TableRow]) -> Remark:
    """A formula's remark, with the value that is used."""
    if remark.kind is not RemarkKind.FORMULA or remark.row not in rows:
        return remark
    cells = rows[remark.row].cells
    return Remark(
        remark.kind, remark.row, remark.column, cells[remark.column] if remark.column < len(cells) else ""
    )
