"""Extended headers of a tar (pax), with nothing in them that costs `tarfile` more than their size.

Before Python 3.11.10, 3.12.6 and 3.13 `tarfile` searches extended headers by regular expressions whose time
grows with the square of a run of digits (CVE-2024-6232). So `tarfile` gets only the records that it needs for
names, sizes and sparse files, of bounded length, and without a longer run of digits than they can have.
"""

import re
import tarfile

from pipeline.names import NAME_LIMIT, SEGMENT_LIMIT

EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
"""Types of entries whose content is an extended header."""

_ONCE = re.compile(
    rb"path|linkpath|size|hdrcharset|GNU\.sparse\.(?:major|minor|name|realsize|size|numblocks)"
)
"""Keywords of which the last record counts."""

_NUMBERS = re.compile(rb"GNU\.sparse\.(?:map|offset|numbytes)")
"""Keywords of many numbers, in one record or in many records."""

_LENGTH = re.compile(rb"(\d{1,10}) ")
_DIGITS = re.compile(rb"\d+")

_LONGEST_RECORD = 4 * NAME_LIMIT
"""Bytes of a record with a name; a name that is as long is refused in any case."""

_LONGEST_NUMBER = 20
"""Digits of the largest number of 64 bits."""


def header_type(header: bytes) -> bytes:
    """The type of the entry that the block of 512 bytes announces; empty if it is no valid header."""
    if header[156:157] not in (*EXTENDED, tarfile.GNUTYPE_LONGNAME):
        return b""
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").type
    except tarfile.TarError:
        return b""


def needed_records(content: bytes) -> bytes:
    """The records that `tarfile` needs, filled up to the same length; ReadError if one is not possible."""
    once: dict[bytes, bytes] = {}
    numbers: list[bytes] = []
    position = 0
    while position < len(content) and content[position]:
        length = _LENGTH.match(content, position)
        end = position + int(length[1]) if length else 0
        equals = content.find(b"=", length.end(), end) if length else -1
        if length is None or equals < 0 or end > len(content) or content[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a record of an extended header is damaged")
        keyword, record = content[length.end() : equals], content[position:end]
        if keyword == b"GNU.volume.filename":
            raise tarfile.ReadError("a file in it is continued from another volume")
        if _ONCE.fullmatch(keyword):
            once[keyword] = record
        elif _NUMBERS.fullmatch(keyword):
            numbers.append(record)
        position = end
    if any(len(record) > _LONGEST_RECORD or _longest_run(record) > SEGMENT_LIMIT for record in once.values()):
        raise tarfile.ReadError("an extended header has a name that is too long")
    if any(_longest_run(record) > _LONGEST_NUMBER for record in numbers):
        raise tarfile.ReadError("an extended header has a number that is too large")
    return b"".join([*once.values(), *numbers]).ljust(len(content), b"\0")


def _longest_run(record: bytes) -> int:
    """Of digits; in linear time."""
    return max(map(len, _DIGITS.findall(record)))
