"""What the library does not give of a spreadsheet, from its XML: formulas, errors, merged cells, and how
whole numbers and dates are shown.

The library has read the file before, and refused entities. A position that is left out follows the last.
"""

import io
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from pipeline.tables.content import EXACT, TableFormat, column_letters
from pipeline.tables.remarks import Remark, RemarkKind

_MARKED = re.compile(
    rb"""<(?:\w+:)?f[\s/>]|t=["']e["']|:formula=|value-type=["']error["']|-spanned="""
    rb"""|:min-integer-digits=|:value=["']-?\d{16}|:date-value="""
)
"""What XLSX and ODS write for a formula, an error or merged cells, and ODS for the format of a number, for
one of many digits, and for a date."""

_KEPT = 1 << 53
"""Whole numbers up to it are kept with all their digits by a program that computes with doubles."""

_FORMAT = re.compile(r"""((?:"[^"]*"|\\.|[-/ ])*)(0+)((?:"[^"]*"|\\.|[-/ ])*)""")
"""A format of whole numbers: digits of which zeros are shown, between texts."""

_TEXT_OF_FORMAT = re.compile(r"""(?s)"[^"]*"|\\.|_.|\[[^]]*\]|;.*""")
"""Parts of a format that stand for no number or date: texts, colours, and the format of negative numbers."""

_MONTH, _YEAR = "month", "year"
"""The last part of a date that a cell shows, if that is not the day."""

_MONTHS = ("17",)
"""The numbers of the formats without a day that Excel has without writing them (mmm-yy)."""

_REFERENCE = re.compile(r"[A-Z]{1,3}")
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_CALC = "{urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0}"


def cell_remarks(archive: ZipFile, kind: TableFormat, sheet: str) -> Iterator[Remark]:
    """Remarks about cells with a formula or an error, about whole numbers and dates as they are shown, and
    about merged cells of ODS.

    A formula without a value has the formula as its text; one with a value has no text.
    """
    ods = kind is TableFormat.ODS
    xml = archive.read("content.xml" if ods else _part(archive, sheet))
    formats = _Formats() if ods else _formats(archive)
    # few lists have any, and parsing takes most of the time
    if formats.numbers or formats.dates or _MARKED.search(xml):
        yield from _of_ods(xml, sheet) if ods else _of_xlsx(xml, formats)


def merged(first: tuple[int, int], last: tuple[int, int]) -> Remark:
    """The remark about merged cells, from the first to the last (row, column)."""
    text = ":".join(f"{column_letters(column)}{row}" for row, column in (first, last))
    return Remark(RemarkKind.MERGED, *first, text)


@dataclass(frozen=True)
class _Formats:
    """How XLSX shows cells, by the number of their style."""

    numbers: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """Text, digits and text of whole numbers."""
    dates: dict[str, str] = field(default_factory=dict)
    """_MONTH or _YEAR, for dates that are not shown to the day."""


def _formats(archive: ZipFile) -> _Formats:
    formats = _Formats()
    if "xl/styles.xml" not in archive.namelist():
        return formats
    codes = dict.fromkeys(_MONTHS, "mmm-yy")
    for _, name, element in _elements(archive.read("xl/styles.xml")):
        if name == "numFmt":
            codes[element.get("numFmtId", "")] = element.get("formatCode", "")
        elif name == "cellXfs":
            for number, style in enumerate(element):
                code = codes.get(style.get("numFmtId", ""), "")
                if match := _FORMAT.fullmatch(code):
                    before, after = (re.sub(r'"|\\(.)', r"\1", text) for text in (match[1], match[3]))
                    formats.numbers[str(number)] = (before, len(match[2]), after)
                elif part := _date_shown(code):
                    formats.dates[str(number)] = part
    return formats


def _date_shown(code: str) -> str:
    """_MONTH or _YEAR, if a format shows of a date only that; empty for others."""
    signs = set(_TEXT_OF_FORMAT.sub("", code).lower())
    if "y" not in signs or not signs.isdisjoint("dhs0#?"):
        return ""
    return _MONTH if "m" in signs else _YEAR


def _of_xlsx(xml: bytes, formats: _Formats) -> Iterator[Remark]:
    row = 0
    for _, name, element in _elements(xml):
        if name == "row":
            row = int(element.get("r", row + 1))
            yield from _of_xlsx_row(row, element, formats)
            element.clear()


def _of_xlsx_row(row: int, element: Element, formats: _Formats) -> Iterator[Remark]:
    column = -1
    for cell in element:
        place = _REFERENCE.match(cell.get("r", ""))
        column = _column(place[0]) if place else column + 1
        parts = {part.tag.rpartition("}")[2]: part.text or "" for part in cell}
        kind, formula, value = cell.get("t"), parts.get("f"), parts.get("v", "")
        if kind == "e":
            yield Remark(RemarkKind.ERROR, row, column, value)
        elif formula is not None and value:
            yield Remark(RemarkKind.FORMULA, row, column)
        elif formula is not None and kind != "str":  # the value of a text may be empty
            yield Remark(RemarkKind.NO_VALUE, row, column, f"={formula}")
        if part := formats.dates.get(cell.get("s", "")):
            yield Remark(RemarkKind.DATE_PART, row, column, part)
        if kind in (None, "n") and value and (shown := formats.numbers.get(cell.get("s", ""))):
            before, digits, after = shown
            number = float(value)
            if 0 <= number < EXACT and number.is_integer():
                yield Remark(RemarkKind.SHOWN, row, column, f"{before}{int(number):0{digits}}{after}")


def _of_ods(xml: bytes, sheet: str) -> Iterator[Remark]:
    row, inside = 1, False
    for event, name, element in _elements(xml, ("start", "end")):
        if name == "table":
            inside, row = event == "start" and element.get(f"{_TABLE}name") == sheet, 1
        elif name == "table-row" and event == "end":
            if inside:
                yield from _of_ods_row(row, element)
            row += _count(element, "rows-repeated")
            element.clear()


def _of_ods_row(row: int, element: Element) -> Iterator[Remark]:
    column = 0
    for cell in element:
        formula = cell.get(f"{_TABLE}formula")
        if cell.get(f"{_CALC}value-type") == "error":
            yield Remark(
                RemarkKind.ERROR, row, column, "".join(p.text or "" for p in cell.iterfind(f"{_TEXT}p"))
            )
        elif formula is not None and f"{_OFFICE}value-type" in cell.attrib:
            yield Remark(RemarkKind.FORMULA, row, column)
        elif formula is not None:
            yield Remark(RemarkKind.NO_VALUE, row, column, formula)
        if cell.get(f"{_OFFICE}value-type") == "float":
            shown = "".join(part.text or "" for part in cell.iterfind(f"{_TEXT}p"))
            if _shows(shown, cell.get(f"{_OFFICE}value", "-1")):
                yield Remark(RemarkKind.SHOWN, row, column, shown)
        elif part := _part_shown(cell):
            yield Remark(RemarkKind.DATE_PART, row, column, part)
        rows, columns = _count(cell, "rows-spanned"), _count(cell, "columns-spanned")
        if rows > 1 or columns > 1:
            yield merged((row, column), (row + rows - 1, column + columns - 1))
        column += _count(cell, "columns-repeated")


def _part_shown(cell: Element) -> str:
    """_MONTH or _YEAR, if an ODS cell shows of its date only that."""
    date = re.match(r"(\d{4})-(\d\d)-\d\d", cell.get(f"{_OFFICE}date-value", ""))
    shown = "".join(part.text or "" for part in cell.iterfind(f"{_TEXT}p"))
    if date is None or date[1] not in shown:
        return ""
    rest = shown.replace(date[1], "", 1)
    if not re.search(r"\w", rest):
        return _YEAR
    return _MONTH if re.fullmatch(rf"[^\w]*(?:[^\W\d_]{{3,}}|0?{int(date[2])})[^\w]*", rest) else ""


def _shows(shown: str, value: str) -> bool:
    """Whether the text shows a whole number with all digits, of which none was lost before they were written.

    A number with further digits than those that tell a double from its neighbours was never a double.
    """
    number = float(value)
    if not number.is_integer():
        return False
    written = Decimal(value)
    if abs(number) >= _KEPT and written == Decimal(repr(number)):
        return False
    return re.fullmatch(rf"\D*0*{int(written)}\D*", shown) is not None


def _count(element: Element, name: str) -> int:
    return int(element.get(f"{_TABLE}number-{name}", 1))


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _part(archive: ZipFile, sheet: str) -> str:
    """The name, in the archive, of the XML of this sheet of an XLSX file."""
    relations = _elements(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {element.get("Id"): element.get("Target", "") for _, _, element in relations}
    listed = _elements(archive.read("xl/workbook.xml"))
    sheets = (element.attrib for _, name, element in listed if name == "sheet")
    of_sheet = next(attributes for attributes in sheets if attributes["name"] == sheet)
    relation = next(value for name, value in of_sheet.items() if name.endswith("}id"))
    return posixpath.normpath(posixpath.join("/xl", targets[relation])).lstrip("/")


def _elements(
    xml: bytes, events: Sequence[Literal["start", "end"]] = ("end",)
) -> Iterator[tuple[str, str, Element]]:
    """The event, the element's name in its namespace, and the element."""
    for event, element in ElementTree.iterparse(io.BytesIO(xml), events):  # noqa: S314 - see above
        yield event, element.tag.rpartition("}")[2], element
