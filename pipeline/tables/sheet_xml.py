"""The formulas, errors and merged cells of a spreadsheet, from its XML: the library does not give them.

Rules: no document type, hence no entities; a position that is left out follows the one before.
"""

import posixpath
import re
from collections.abc import Callable
from xml.parsers import expat
from zipfile import ZipFile

from pipeline.tables.content import TableFormat, TableUnreadable, column_letters
from pipeline.tables.remarks import Remark, RemarkKind

_Attributes = dict[str, str]

_MARKED = re.compile(rb"""<(?:\w+:)?f[\s/>]|t=["']e["']|:formula=|value-type=["']error["']|-spanned=""")
"""What XLSX and ODS write for a formula, an error or merged cells."""

_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")


def cell_remarks(archive: ZipFile, kind: TableFormat, sheet: str) -> list[Remark]:
    """Remarks about cells with a formula or an error and, in ODS, merged cells.

    A formula without a value has the formula as its text; one with a value has no text.
    """
    ods = kind is TableFormat.ODS
    cells = _OdsCells(sheet) if ods else _XlsxCells()
    xml = archive.read("content.xml" if ods else _part(archive, sheet))
    if _MARKED.search(xml):  # few lists have any, and parsing takes most of the time
        _parse(xml, cells.start, cells.end, cells.text)
    return cells.remarks


class _Cells:
    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self._row, self._column = 0, -1
        self._cell: _Attributes = {}
        self._text = ""

    def text(self, text: str) -> None:
        self._text += text

    def _remark(self, kind: RemarkKind, text: str = "") -> None:
        self.remarks.append(Remark(kind, self._row, self._column, text))


class _XlsxCells(_Cells):
    def __init__(self) -> None:
        super().__init__()
        self._formula: str | None = None
        self._value = ""

    def start(self, name: str, attributes: _Attributes) -> None:
        if name == "row":
            self._row, self._column = int(attributes.get("r", self._row + 1)), -1
        elif name == "c":
            self._cell, self._formula, self._value = attributes, None, ""
            self._column += 1
            if place := _REFERENCE.fullmatch(attributes.get("r", "")):
                self._column, self._row = _column(place[1]), int(place[2])
        self._text = ""

    def end(self, name: str) -> None:
        if name == "f":
            self._formula = self._text
        elif name == "v":
            self._value = self._text
        elif name == "c":
            self._remark_cell(self._cell.get("t"))

    def _remark_cell(self, kind: str | None) -> None:
        if kind == "e":
            self._remark(RemarkKind.ERROR, self._value)
        elif self._formula is not None and self._value:
            self._remark(RemarkKind.FORMULA)
        elif self._formula is not None and kind != "str":  # the value of a text may be empty
            self._remark(RemarkKind.NO_VALUE, f"={self._formula}")


_ODS_CELLS = ("table-cell", "covered-table-cell")


class _OdsCells(_Cells):
    def __init__(self, sheet: str) -> None:
        super().__init__()
        self._sheet = sheet
        self._inside = False
        self._next_row = 1
        self._notes = 0
        """Depth of notes, whose text is not the cell's."""

    def start(self, name: str, attributes: _Attributes) -> None:
        if name == "table":
            self._inside = attributes.get("table:name") == self._sheet
        elif name == "table-row":
            self._row, self._column = self._next_row, 0
            self._next_row += int(attributes.get("table:number-rows-repeated", 1)) if self._inside else 0
        elif name in _ODS_CELLS:
            self._cell, self._text = attributes, ""
        elif name == "annotation":
            self._notes += 1

    def text(self, text: str) -> None:
        if not self._notes:
            super().text(text)

    def end(self, name: str) -> None:
        if name == "table":
            self._inside = False
        elif name in _ODS_CELLS and self._inside:
            self._remark_cell(self._cell)
            self._column += int(self._cell.get("table:number-columns-repeated", 1))
        elif name == "annotation":
            self._notes -= 1

    def _remark_cell(self, cell: _Attributes) -> None:
        if cell.get("calcext:value-type") == "error":
            self._remark(RemarkKind.ERROR, self._text.strip())
        elif "table:formula" in cell:
            if "office:value-type" in cell:
                self._remark(RemarkKind.FORMULA)
            else:
                self._remark(RemarkKind.NO_VALUE, cell["table:formula"])
        rows, columns = (int(cell.get(f"table:number-{of}-spanned", 1)) for of in ("rows", "columns"))
        if rows > 1 or columns > 1:
            last = (self._row + rows - 1, self._column + columns - 1)
            self.remarks.append(merged((self._row, self._column), last))


def merged(first: tuple[int, int], last: tuple[int, int]) -> Remark:
    """The remark about merged cells, from the first to the last (row, column)."""
    text = ":".join(f"{column_letters(column)}{row}" for row, column in (first, last))
    return Remark(RemarkKind.MERGED, *first, text)


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _part(archive: ZipFile, sheet: str) -> str:
    """The name, in the archive, of the XML of this sheet of an XLSX file."""
    targets: dict[str, str] = {}
    identifiers: dict[str, str] = {}

    def relationship(name: str, attributes: _Attributes) -> None:
        if name == "Relationship":
            targets[attributes.get("Id", "")] = attributes.get("Target", "")

    def listed(name: str, attributes: _Attributes) -> None:
        if name == "sheet":
            identifier = next((value for key, value in attributes.items() if key.endswith(":id")), "")
            identifiers[attributes.get("name", "")] = identifier

    _parse(archive.read("xl/_rels/workbook.xml.rels"), relationship)
    _parse(archive.read("xl/workbook.xml"), listed)
    return posixpath.normpath(posixpath.join("/xl", targets[identifiers[sheet]])).lstrip("/")


def _parse(
    xml: bytes,
    start: Callable[[str, _Attributes], None],
    end: Callable[[str], None] = lambda name: None,
    text: Callable[[str], None] = lambda text: None,
) -> None:
    """Parse the XML; elements are named without a prefix."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = lambda name, attributes: start(name.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda name: end(name.rpartition(":")[2])
    parser.CharacterDataHandler = text
    parser.Parse(xml, True)


def _refuse(*_: object) -> None:
    raise TableUnreadable("its XML declares entities, which no spreadsheet program writes: save it again")
