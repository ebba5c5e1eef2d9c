"""Extended headers of a tar (pax), with nothing in them that costs `tarfile` more than their size.

Before Python 3.11.10, 3.12.6 and 3.13 `tarfile` searches extended headers by regular expressions whose time
grows with the square of a run of digits (CVE-2024-6232). So `tarfile` gets only the records that it needs for
names, sizes and sparse files, and none with a longer run of digits than a name or a number can have.
"""

import re
import tarfile

from pipeline.names import SEGMENT_LIMIT

EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
"""Types of entries whose content is an extended header."""

_NEEDED = re.compile(rb"path|linkpath|size|hdrcharset|GNU\.sparse\..*")
_LENGTH = re.compile(rb"(\d{1,10}) ")
_DIGITS = re.compile(rb"\d{%d}" % (SEGMENT_LIMIT + 1))
"""No segment of a name that could be written, and no number, has so many."""


def is_extended(header: bytes) -> bool:
    """True if the block of 512 bytes announces an extended header."""
    if header[156:157] not in EXTENDED:
        return False
    try:
        tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def needed_records(content: bytes) -> bytes:
    """The records that `tarfile` needs, filled up to the same length; ReadError if one is not well-formed."""
    kept = bytearray()
    position = 0
    while position < len(content) and content[position]:
        length = _LENGTH.match(content, position)
        end = position + int(length[1]) if length else 0
        equals = content.find(b"=", length.end(), end) if length else -1
        if length is None or equals < 0 or end > len(content) or content[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a record of an extended header is damaged")
        if _NEEDED.fullmatch(content, length.end(), equals):
            kept += content[position:end]
        position = end
    if _DIGITS.search(kept):
        raise tarfile.ReadError(
            f"an extended header has a name or a number of more than {SEGMENT_LIMIT} digits"
        )
    return bytes(kept).ljust(len(content), b"\0")
