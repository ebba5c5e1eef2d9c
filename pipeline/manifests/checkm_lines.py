"""The lines of a Checkm manifest, one after the other."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.manifests import other_formats
from pipeline.manifests.checkm_problems import Findings

HEADER_LIMIT = 100
"""Lines that begin with #%; a manifest needs four."""

LINE_LIMIT = 1 << 17
"""Bytes of one line: all columns at their own limits fit."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

# Characters that lists, mail and XML cannot contain.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str


def read(data: bytes, most: int | None, findings: Findings) -> tuple[list[Line], list[Line]]:
    """The headers and the rows before `#%eof`, which must be the last line with text."""
    headers: list[Line] = []
    rows: list[Line] = []
    ended = False
    for number, raw in enumerate(_raw_lines(data, findings), 1):
        text = _text(number, raw, findings) if raw else ""
        if not text:
            continue
        if ended:
            findings.error(number, "text follows after #%eof")
            break
        ended = text[:5].lower() == "#%eof"
        if not text.startswith("#"):
            rows.append(Line(number, text))
            if most is not None and len(rows) > most:
                findings.stop(
                    number,
                    f"the manifest has more than {most:,} rows: divide it, or ask the operator for a higher "
                    "limit (limits.batch_jobs for a batch, ARKLINE_OBJECT_FILES for an object)",
                )
        elif text.startswith("#%") and not ended:
            headers.append(Line(number, text))
            if len(headers) > HEADER_LIMIT:
                findings.stop(number, f"more than {HEADER_LIMIT} lines begin with #%")
    if not (headers or rows or ended or findings.errors):
        findings.stop(0, "the manifest is empty")
    if not ended:
        findings.error(0, "the last line is not #%eof: the manifest may be truncated")
    return headers, rows


def _raw_lines(data: bytes, findings: Findings) -> Iterator[bytes]:
    """One line at a time, so that a manifest of many short lines does not fill the memory."""
    if problem := other_formats.problem_of(data):
        findings.stop(0, problem)
    if data.startswith(_UTF16):
        findings.stop(0, "the manifest is UTF-16; save it as UTF-8")
    start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    for end in _LINE_END.finditer(data):
        yield data[start : end.start()]
        start = end.end()
    yield data[start:]


def _text(number: int, raw: bytes, findings: Findings) -> str:
    """The text of the line; empty if it cannot be read."""
    if len(raw) > LINE_LIMIT:
        findings.stop(number, f"the line is longer than {LINE_LIMIT} bytes")
    try:
        text = raw.decode().strip(" \t")
    except UnicodeDecodeError as error:
        findings.error(number, f"byte {error.start + 1} is not UTF-8; save the manifest as UTF-8")
        return ""
    if forbidden := _FORBIDDEN.search(text):
        findings.error(number, f"the line contains the control character U+{ord(forbidden[0]):04X}")
        return ""
    return text
