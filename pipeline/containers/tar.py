"""tar containers, plain and compressed by gzip or bzip2.

Before Python 3.11.10, 3.12.6 and 3.13 `tarfile` searches extended headers (pax) by regular expressions whose
time grows with the square of a run of digits (CVE-2024-6232). So `tarfile` gets only the records that it
needs for names, sizes and sparse files, with limits on their length and on their runs of digits.
"""

import bz2
import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Self

from pipeline.containers.base import Archive, Entry, from_here
from pipeline.fixity import READ_CHUNK
from pipeline.names import NAME_LIMIT, SEGMENT_LIMIT, quote_name, safe_name
from pipeline.outcome import content

EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
"""Types of entries whose content is an extended header."""

_ONCE = re.compile(
    rb"path|linkpath|size|hdrcharset|GNU\.sparse\.(?:major|minor|name|realsize|size|numblocks)"
)
"""Keywords whose last record counts."""

_NUMBERS = re.compile(rb"GNU\.sparse\.(?:map|offset|numbytes)")
"""Keywords with many numbers, in one record or in several."""

_LENGTH = re.compile(rb"(\d{1,10}) ")
_DIGITS = re.compile(rb"\d+")

_LONGEST_RECORD = 4 * NAME_LIMIT
"""Maximum bytes of a record with a name; a name of that length is refused in any case."""

_LONGEST_NUMBER = 20
"""Digits of the largest number of 64 bits."""


def header_type(header: bytes) -> bytes:
    """The type of the extended header or long name that a block of 512 bytes announces; empty if none."""
    if header[156:157] not in (*EXTENDED, tarfile.GNUTYPE_LONGNAME):
        return b""
    try:
        return tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").type
    except tarfile.TarError:
        return b""


def needed_records(content: bytes) -> bytes:
    """Keep the records that `tarfile` needs, padded to the same length; ReadError if a record is invalid."""
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
    """The length of the longest run of digits, in linear time."""
    return max(map(len, _DIGITS.findall(record)))


BLOCK = tarfile.BLOCKSIZE

_DUMPED_FOLDER, _CONTINUED = b"D", b"M"
"""GNU tar's types for backups: a folder with a list of its content, and the rest of a file that begins in
another volume."""

_NO_FILE = (b"V", b"A")
"""Types that are skipped: the label of a volume (GNU tar), and access rights of the next file (Solaris)."""

_HEADER_LIMIT = READ_CHUNK
"""Maximum bytes of one entry's headers, extended ones included, which tarfile holds in memory."""

_ENTRY_OVERHEAD = 4 * BLOCK
"""Bytes of an entry beside its content: header, extended header and padding."""

_COMPRESSED_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2")


@dataclass(frozen=True)
class Tar:
    """A tar format; compressed if it has a signature. `open_stream` decompresses while the file is read."""

    signature: bytes
    open_stream: Callable[[Path], io.BufferedIOBase]

    def recognizes(self, archive: Archive, head: bytes) -> bool:
        del archive
        return head.startswith(self.signature) if self.signature else _is_tar(head)

    @contextmanager
    def entries(self, archive: Archive) -> Iterator[Iterator[Entry]]:
        with self.open_stream(archive.path) as stream:
            head = stream.read(BLOCK)
            stream.seek(0)
            if not _is_tar(head):
                if archive.name.lower().endswith(_COMPRESSED_SUFFIXES):
                    raise tarfile.ReadError("the compressed file is not a tar")
                raise content(
                    f"{archive.title} is a compressed file without a tar in it: submit the file as "
                    "type file, or pack it as .zip or .tar.gz"
                )
            yield _entries(stream, archive)


TAR = Tar(b"", lambda path: path.open("rb"))
TAR_GZ = Tar(b"\x1f\x8b", gzip.GzipFile)
TAR_BZ2 = Tar(b"BZh", bz2.BZ2File)


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


class _Header(tarfile.TarInfo):
    """A header with the name that is in its block, where tarfile reads another name."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read the prefix of POSIX blocks only (the GNU format has times there); do not cut names at NUL."""
        header = super().frombuf(buf, encoding, errors)

        def text(begin: int, end: int) -> str:
            return bytes(buf[begin:end]).rstrip(b"\0").decode(encoding, errors)

        name = text(0, 100)
        header.name = name.rstrip("/") if header.isdir() else name
        if buf[257:263] == b"ustar\0" and header.type not in tarfile.GNU_TYPES:
            # star writes times in the last bytes, after a prefix that ends with NUL
            prefix = text(345, 476 if buf[475] == 0 and buf[508:512] == b"tar\0" else 500)
            header.name = f"{prefix.removesuffix('/')}/{header.name}" if prefix else header.name
        return header


class _Forward(io.RawIOBase):
    """The stream that tarfile reads: forward only, with limits on an entry's headers and on all bytes.

    Extended headers are reduced to the records that tarfile needs.
    """

    def __init__(self, plain: io.BufferedIOBase, archive: Archive) -> None:
        self._plain = plain
        self._archive = archive
        self._limit = archive.max_bytes + archive.max_entries * _ENTRY_OVERHEAD + READ_CHUNK
        self._position = 0
        self._extended = False
        """True if an extended header is next."""
        self._long_name = False
        """True if a long name of the GNU format is next."""
        self.last = b""
        self.header_room: int | None = _HEADER_LIMIT
        """Bytes that the headers of the entry may still take; None while content is read."""

    def read(self, size: int = -1, /) -> bytes:
        if self.header_room is not None:
            self.header_room -= size
        if size < 0 or (self.header_room is not None and self.header_room < 0):
            raise tarfile.ReadError("a header claims too many bytes")
        self.last = self._chunk(size)
        if self.header_room is not None:
            self.last = self._reduced(self.last)
        return self.last

    def _reduced(self, chunk: bytes) -> bytes:
        if self._extended:
            chunk = needed_records(chunk)
        elif self._long_name and b"\0" in (name := chunk.rstrip(b"\0")):
            safe_name(name.decode("utf-8", "surrogateescape"))  # tarfile would cut the name
        # also a block after an extended header: only tarfile knows which blocks are headers
        kind = header_type(chunk)
        self._extended, self._long_name = kind in EXTENDED, kind == tarfile.GNUTYPE_LONGNAME
        return chunk

    def _chunk(self, size: int) -> bytes:
        chunk = self._plain.read(size)
        self._position += len(chunk)
        if self._position > self._limit:
            raise content(
                f"{self._archive.title} unpacks to more than {self._limit} bytes: divide it, or ask the "
                "operator for a higher limit"
            )
        return chunk

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or position < self._position:
            raise tarfile.ReadError("a header points backwards")
        while self._position < position and self._chunk(min(READ_CHUNK, position - self._position)):
            pass
        return self._position


def _entries(plain: io.BufferedIOBase, archive: Archive) -> Iterator[Entry]:
    stream = _Forward(plain, archive)
    opened = tarfile.open(  # noqa: SIM115  - the archive's file is closed by the caller
        fileobj=stream, mode="r:", tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
    )
    last = ""
    while info := _next(opened, stream):
        last = quote_name(info.name)
        is_folder = info.isdir() or info.type == _DUMPED_FOLDER or _has_slash(info)
        name, encoding, raw = _name(info.name.rstrip("/") if is_folder else info.name)
        yield Entry(
            name="" if info.type in _NO_FILE else from_here(name),
            is_folder=is_folder or info.type in _NO_FILE,
            refused="is a folder with content" if _has_slash(info) and info.size else _refusal(info),
            open=partial(_open, opened, info),
            name_encoding=encoding,
            raw_name=raw,
        )
    _check_end(stream, last)


def _next(opened: tarfile.TarFile, stream: _Forward) -> tarfile.TarInfo | None:
    stream.header_room = _HEADER_LIMIT
    info = opened.next()
    opened.members.clear()  # type: ignore[attr-defined]  # tarfile keeps an object for every entry
    if info is not None:
        stream.header_room = None
    return info


def _has_slash(info: tarfile.TarInfo) -> bool:
    """Whether a file's name ends with a slash, which makes it a folder; tarfile strips the slash in pax."""
    name = info.pax_headers.get("path", info.name)
    return info.isreg() and name.endswith("/")


def _name(name: str) -> tuple[str, str, bytes]:
    """The name; if it is not UTF-8, decoded as ISO 8859-1, with that encoding and the raw bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raw = name.encode("utf-8", "surrogateescape")
        return raw.decode("iso-8859-1"), "iso-8859-1", raw
    return name, "", b""


def _refusal(info: tarfile.TarInfo) -> str | None:
    if info.type in (*_NO_FILE, _DUMPED_FOLDER):
        return None
    if info.type == _CONTINUED:
        return "is continued from another volume; pack all files into one archive"
    if info.issym():
        return "is a symbolic link; pack the file itself (tar --dereference)"
    if info.islnk():
        return "is a hard link; pack the file itself (tar --hard-dereference)"
    if not (info.isreg() or info.isdir()) or info.size < 0:
        return "is neither a file nor a folder"
    return None


def _open(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = opened.extractfile(info)
    assert stream is not None, "extractfile returns None for entries that _refusal refused"
    return stream


def _check_end(stream: _Forward, last: str) -> None:
    """Require a block of zeros at the end: tarfile takes any damaged header but the first for the end."""
    if stream.last != bytes(BLOCK):
        raise tarfile.ReadError(f"no end of archive after {last}")
    stream.header_room = None
    while chunk := stream.read(READ_CHUNK):
        if chunk.count(0) != len(chunk):
            raise tarfile.ReadError(f"something follows the end of the archive, which is after {last}")
