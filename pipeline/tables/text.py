"""Tables of text (CSV, TSV): their encoding and delimiter are recognized, and said where uncertain."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from pipeline.tables import fields
from pipeline.tables.content import (
    HEADER_SEARCHED,
    Sheet,
    TableFormat,
    TableRow,
    TableUnreadable,
    format_of,
    known_names,
    within_limits,
)
from pipeline.tables.remarks import Remark, RemarkKind

CELL_LIMIT = 1 << 17
"""Maximum characters of a cell: more than any field may have, so that the field's limit is reported."""

DELIMITERS = (",", ";", "\t")
"""Delimiters that spreadsheet programs use, depending on the country."""

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_NAMES = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252"}
_HINT = re.compile(r'"?sep *= *([,;\t|]|\\t)"?[,;\t| ]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
"""A first line that tells Excel the delimiter; other programs quote it or append empty cells."""


def read_sheet(data: bytes, columns: Mapping[str, str] | None = None) -> Sheet:
    """The rows of a table of text. `columns`: headers that a person named, which tell the delimiter."""
    text, encoding = decode(data)
    hint = _HINT.match(text)
    body = text[hint.end() :] if hint else text
    delimiter = hint[1].replace("\\t", "\t") if hint else _delimiter(body, columns or {})
    rows = tuple(within_limits(_rows(body, delimiter)))
    return Sheet(TableFormat.TEXT, rows, tuple(_remarks(rows, _NAMES[encoding])), _NAMES[encoding], delimiter)


def decode(data: bytes) -> tuple[str, str]:
    """The text, and the codec that it was read with; TableUnreadable if it is no text.

    Order: what a byte order mark says, UTF-8, UTF-16 if there are zero bytes, and else Windows-1252.
    """
    for mark, codec in _MARKS.items():
        if data.startswith(mark):
            return _decoded(data[len(mark) :], codec), codec
    if b"\0" in data[:CELL_LIMIT]:
        # a line end or a delimiter has its zero byte first in the order of big-endian machines
        codec = "utf-16-be" if data[0::2].count(0) > data[1::2].count(0) else "utf-16-le"
        return _decoded(data, codec), codec
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return _decoded(data, "cp1252"), "cp1252"


def _decoded(data: bytes, codec: str) -> str:
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        raise TableUnreadable(
            f"it is no table of text: byte {error.start + 1:,} is not {_NAMES[codec]}. Save it as 'CSV UTF-8'"
        ) from error
    if "\0" in text:
        raise TableUnreadable("it is no table of text: it has zero bytes. Save it as 'CSV UTF-8'")
    return text


def _rows(text: str, delimiter: str) -> Iterator[TableRow]:
    csv.field_size_limit(CELL_LIMIT)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 0
    try:
        for number, record in enumerate(reader, 1):
            cells = tuple(cell.strip() for cell in record)
            if any(cells):
                yield TableRow(number, cells)
    except csv.Error as error:
        raise TableUnreadable(
            f"the table cannot be read after row {number}: {error}; check the quotation marks", number
        ) from error


def _delimiter(text: str, columns: Mapping[str, str]) -> str:
    """The delimiter with which a row has the most names of fields, else the most rows of equal width."""

    def fit(delimiter: str) -> tuple[int, int, int]:
        rows = _first_rows(text, delimiter)
        names = max((known_names(row.cells, columns) for row in rows), default=0)
        ((width, count),) = Counter(len(row.cells) for row in rows).most_common(1) or [(0, 0)]
        return names, count if width > 1 else 0, width

    return max(DELIMITERS, key=fit)


def _first_rows(text: str, delimiter: str) -> list[TableRow]:
    """The rows among which the header row is, as far as they can be read."""
    rows: list[TableRow] = []
    with suppress(TableUnreadable):  # of quotation marks
        rows.extend(islice(_rows(text, delimiter), HEADER_SEARCHED))
    return rows


def looks_like_table(head: bytes, tail: bytes = b"") -> bool:
    """Whether a file that begins and ends so is a spreadsheet, or a text whose header row names fields."""
    if format_of(head + tail) is not TableFormat.TEXT:
        return True
    whole = head if not tail else head[: len(head) & ~1] if b"\0" in head else head[: head.rfind(b"\n") + 1]
    try:
        text, _ = decode(whole)
    except TableUnreadable:
        return False
    rows = _first_rows(text, _delimiter(text, {}))
    known = (set(map(fields.field_of, row.cells)) - {""} for row in rows)
    return any(len(names) > 1 and names & {fields.FILE, fields.URL} for names in known)


def _remarks(rows: Sequence[TableRow], encoding: str) -> Iterator[Remark]:
    first = next((row.number for row in rows if not all(map(str.isascii, row.cells))), 0)
    if encoding != "UTF-8" and first:
        yield Remark(RemarkKind.ENCODING, first, text=encoding)
