"""Remarks about the cells of a table: what a person should look at before the table is used."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from pipeline.names import quote_name


class RemarkKind(StrEnum):
    ENCODING = "encoding"
    """The text is not UTF-8; the remark's cell is the first with other letters than English has."""
    TITLE_ROWS = "title-rows"
    """Rows above the header row are not used."""
    OTHER_SHEETS = "other-sheets"
    FORMULAS_UNKNOWN = "formulas-unknown"
    """The format was read without its formulas and errors."""
    FORMULA = "formula"
    """The value that the formula had when the table was saved is used."""
    NO_VALUE = "no-value"
    """A formula stands in place of its value, or has none."""
    ERROR = "error"
    MERGED = "merged"
    AMBIGUOUS_DATE = "ambiguous-date"
    SERIAL_DATE = "serial-date"
    SHOWN = "shown"
    """A whole number as the cell shows it, such as 0007, which is read."""
    DATE_PART = "date-part"
    """A date of which the cell shows no more than the remark's text says: `year`, or year and `month`."""
    INEXACT = "inexact"
    """A number with more digits than a spreadsheet program keeps."""
    NUMBER = "number"
    """The shortest number of a spreadsheet's column: the format in which it is shown is not known."""


@dataclass(frozen=True, slots=True)
class Remark:
    kind: RemarkKind
    row: int = 0
    """0: the table as a whole."""
    column: int = -1
    """Counted from 0; -1: the row, or the table, as a whole."""
    text: str = ""
    """The cell's text, or what else the remark is about."""

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(
            text=self.text, cell=quote_name(self.text), row=self.row, date=_dates(self.text)
        )


def summaries(remarks: Iterable[Remark], title: Callable[[int], str]) -> Iterator[tuple[int, str]]:
    """A sentence for all remarks of one kind about one column, with the row of the first; 0: the table."""
    grouped: dict[tuple[RemarkKind, int], list[Remark]] = {}
    for remark in remarks:
        grouped.setdefault((remark.kind, remark.column), []).append(remark)
    for first, *others in grouped.values():
        if first.column < 0:
            yield 0, str(first)
            continue
        more = f" (and {len(others)} more)" if others else ""
        yield first.row, f"column {quote_name(title(first.column))}: {first}{more}"


_SENTENCES = {
    RemarkKind.ENCODING: "the table is not UTF-8 and was read as {text}: check the letters in row {row}",
    RemarkKind.TITLE_ROWS: "row {row} is read as the header row; the rows above it are not used",
    RemarkKind.OTHER_SHEETS: "only the sheet {cell} is read",
    RemarkKind.FORMULAS_UNKNOWN: "an {text} file does not show which cells have formulas or errors: check "
    "the values, or save the table as .xlsx",
    RemarkKind.FORMULA: "a formula; the value that was saved with it is used: {cell}",
    RemarkKind.NO_VALUE: "a formula without its value: {cell}; replace the formula by its value",
    RemarkKind.ERROR: "{cell} is an error of a spreadsheet, not a value",
    RemarkKind.MERGED: "the cells {text} are merged: only the first of them has the value",
    RemarkKind.AMBIGUOUS_DATE: "the date {cell} is ambiguous: write {date}",
    RemarkKind.NUMBER: "{cell} is a number, and others have more digits: zeros that the spreadsheet shows "
    "before it are not read; if they belong to the identifier, write it as text",
    RemarkKind.INEXACT: "{cell} is a number of which the spreadsheet has kept only 15 digits: write it as "
    "text",
    RemarkKind.SERIAL_DATE: "{cell} is a spreadsheet's number for a day: write {date} if that is meant",
}

DOUBTFUL = ("=", "#", "E")
"""The first characters of a formula or an error."""

_ERROR = re.compile(r"#[¡¿]?[A-ZÉ/0_]{2,20}[!?]|#N/[AD]|#NV|#GETTING_DATA|Err:\d{3}")
"""The errors that Excel and LibreOffice write, in the four languages."""

_FORMULA = re.compile(r"=[-+(@$\"]?[A-Za-z(\d].*", re.DOTALL)
_AMBIGUOUS = re.compile(r"(0?[1-9]|1[0-2])([/-])(0?[1-9]|1[0-2])\2(\d{4}|\d\d)")
_SERIAL = re.compile(r"([1-9]\d{4})(\.\d+)?")
_DAY_0 = date(1899, 12, 30)


def of_text(row: int, column: int, text: str) -> Remark | None:
    """The remark about a cell that was read as text."""
    if _ERROR.fullmatch(text):
        return Remark(RemarkKind.ERROR, row, column, text)
    if text.startswith("=") and _FORMULA.fullmatch(text):
        return Remark(RemarkKind.NO_VALUE, row, column, text)
    return None


def of_date(row: int, column: int, text: str) -> Remark | None:
    """The remark about a cell in a column of dates."""
    if (match := _AMBIGUOUS.fullmatch(text)) and int(match[1]) != int(match[3]):
        return Remark(RemarkKind.AMBIGUOUS_DATE, row, column, text)
    if _SERIAL.fullmatch(text):
        return Remark(RemarkKind.SERIAL_DATE, row, column, text)
    return None


def _dates(text: str) -> str:
    """The dates that the text may mean, as they should be written."""
    if match := _AMBIGUOUS.fullmatch(text):
        first, second, year = int(match[1]), int(match[3]), match[4]
        if len(year) == 2:
            return "year, month and day, the year with four digits"
        return f"{year}-{second:02}-{first:02} or {year}-{first:02}-{second:02}"
    return str(_DAY_0 + timedelta(int(match[1]))) if (match := _SERIAL.fullmatch(text)) else ""
