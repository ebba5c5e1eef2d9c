"""The entries of an archive, one after the other, read once and forward; here those of zip and tar.

Rule: an archive is not believed. Nothing is held in memory by the size that a header claims, and an
archive that ends early is told from one that is complete.
"""

import bz2
import contextlib
import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from pipeline.containers.entry import Entry
from pipeline.fixity import READ_CHUNK
from pipeline.names import CONTAINER_SUFFIXES, quote_name
from pipeline.outcome import StepFailed, content

_BLOCK = tarfile.BLOCKSIZE
_HEADER_LIMIT = READ_CHUNK
"""Bytes of one tar entry's headers, extended ones included, which tarfile holds in memory."""

_ENTRY_OVERHEAD = 4 * _BLOCK
"""Bytes of a tar entry beside its content: header, extended header and padding."""

_ZIP_METHODS = {zipfile.ZIP_STORED: READ_CHUNK, zipfile.ZIP_DEFLATED: READ_CHUNK, zipfile.ZIP_BZIP2: 4096}
"""The methods read, with the bytes asked for at a time: zipfile unpacks bzip2 without a limit, and 4 KiB
of it hold 80 MB at most. LZMA is left out because its header may claim 4 GiB of memory."""

_TARS = (".tar.gz", ".tgz", ".tar.bz2")
_ENCRYPTED = 0x1
_UTF8_NAME = 0x800
_CENTRAL_ENTRY = b"PK\x01\x02"

_FOREIGN = {
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
}


@contextlib.contextmanager
def entries(archive: Path, name: str, most: int, room: int) -> Iterator[Iterator[Entry]]:
    """The archive's entries; `most` entries and `room` bytes bound what reading it may cost."""
    with archive.open("rb") as file:
        head = file.read(_BLOCK)
        file.seek(0)
        if _is_tar(head):
            yield _tar(file, name, most, room)
        elif head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as plain:
                yield _tar(_with_tar(plain, name), name, most, room)
        elif head.startswith(b"BZh"):
            with bz2.BZ2File(file) as plain:
                yield _tar(_with_tar(plain, name), name, most, room)
        elif head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")) or _is_prefixed_zip(file, name):
            with _ZipFile(archive, name, most) as guarded, zipfile.ZipFile(guarded) as opened:
                yield _zip(opened)
        else:
            raise _unknown(head, name)


def _with_tar(plain: gzip.GzipFile | bz2.BZ2File, name: str) -> "_Readable":
    head = plain.read(_BLOCK)
    plain.seek(0)
    if not _is_tar(head):
        if name.lower().endswith(_TARS):
            raise tarfile.ReadError("what comes out is no tar")
        raise content(
            f"container {quote_name(name)} is a compressed file with no tar in it: submit the file as type "
            "file, or pack it as .zip or .tar.gz"
        )
    return plain


def _unknown(head: bytes, name: str) -> StepFailed:
    what = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), "no archive we know")
    return content(
        f"container {quote_name(name)} is {what}: pack it as {' '.join(CONTAINER_SUFFIXES)}, "
        "or submit it as type file to have it kept as it is"
    )


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def _is_prefixed_zip(file: IO[bytes], name: str) -> bool:
    """A zip with something in front, such as the program of a self-extracting one."""
    return name.lower().endswith(".zip") and zipfile.is_zipfile(file)


class _ZipFile(io.FileIO):
    """The archive's file, which refuses to hand over a directory of too many entries.

    zipfile reads the directory at once and makes an object of each entry before we see any.
    """

    def __init__(self, archive: Path, name: str, most: int) -> None:
        super().__init__(archive)
        self._name = name
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        if len(data) > READ_CHUNK and data.count(_CENTRAL_ENTRY) > self._most:
            raise content(f"container {quote_name(self._name)} has more than {self._most} entries: divide it")
        return data

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and position < 0:
            raise zipfile.BadZipFile("its directory points before its beginning")
        return super().seek(position, whence)


def _zip(opened: zipfile.ZipFile) -> Iterator[Entry]:
    for info in opened.infolist():
        name = _zip_name(info)
        yield Entry(
            name=name.removesuffix("/"),
            is_folder=name.endswith("/"),
            refused=_zip_refusal(info),
            open=partial(opened.open, info),
            piece=_ZIP_METHODS.get(info.compress_type, READ_CHUNK),
        )


def _zip_name(info: zipfile.ZipInfo) -> str:
    """UTF-8 if the entry says so or its bytes are; else the format's own code page 437."""
    name = info.orig_filename
    if not info.flag_bits & _UTF8_NAME:
        with contextlib.suppress(UnicodeError):
            return name.encode("cp437").decode("utf-8")
    return name


def _zip_refusal(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link; put the file itself there"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; pack it without a password"
    if info.compress_type not in _ZIP_METHODS:
        return f"is compressed by zip method {info.compress_type}; pack it with the usual one, deflate"
    return None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Forward(io.RawIOBase):
    """What tarfile reads from: never backwards, few header bytes an entry, `most` bytes in all."""

    def __init__(self, plain: _Readable, name: str, most: int) -> None:
        self._plain = plain
        self._name = name
        self._most = most
        self._position = 0
        self.last = b""
        self.header_room: int | None = _HEADER_LIMIT
        """Bytes that the entry's headers may still have; None while content is read."""

    def read(self, size: int = -1, /) -> bytes:
        if self.header_room is not None:
            self.header_room -= size
        if size < 0 or (self.header_room is not None and self.header_room < 0):
            raise tarfile.ReadError("a header claims too many bytes")
        self.last = self._piece(size)
        return self.last

    def _piece(self, size: int) -> bytes:
        piece = self._plain.read(size)
        self._position += len(piece)
        if self._position > self._most:
            raise content(
                f"container {quote_name(self._name)} unpacks to more than {self._most} bytes: divide it, "
                "or ask the operator for a higher limit"
            )
        return piece

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or position < self._position:
            raise tarfile.ReadError("a header points backwards")
        while self._position < position and self._piece(min(READ_CHUNK, position - self._position)):
            pass
        return self._position


def _tar(plain: _Readable, name: str, most: int, room: int) -> Iterator[Entry]:
    stream = _Forward(plain, name, room + most * _ENTRY_OVERHEAD + READ_CHUNK)
    opened = tarfile.open(  # noqa: SIM115  - the archive's file is closed by the caller
        fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape"
    )
    last = ""
    while info := _next(opened, stream):
        last = quote_name(info.name)
        yield Entry(
            name=_tar_name(info.name),
            is_folder=info.isdir(),
            refused=_tar_refusal(info),
            open=partial(_tar_bytes, opened, info),
        )
    _check_end(stream, last)


def _next(opened: tarfile.TarFile, stream: _Forward) -> tarfile.TarInfo | None:
    stream.header_room = _HEADER_LIMIT
    info = opened.next()
    opened.members.clear()  # type: ignore[attr-defined]  # it would keep an object for every entry
    if info is not None:
        stream.header_room = None
    return info


def _tar_name(name: str) -> str:
    """UTF-8, else ISO 8859-1. `./a`, as tar writes what it finds in the folder `.`, is a."""
    try:
        name.encode()
    except UnicodeEncodeError:
        name = name.encode("utf-8", "surrogateescape").decode("iso-8859-1")
    return name.removeprefix("./")


def _tar_refusal(info: tarfile.TarInfo) -> str | None:
    if info.issym():
        return "is a symbolic link; put the file itself there (tar --dereference)"
    if info.islnk():
        return "is a hard link; put the file itself there (tar --hard-dereference)"
    if not (info.isreg() or info.isdir()) or info.size < 0:
        return "is neither a file nor a folder"
    return None


def _tar_bytes(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = opened.extractfile(info)
    assert stream is not None, "extractfile answers None for what _tar_refusal refused"
    return stream


def _check_end(stream: _Forward, last: str) -> None:
    """tarfile takes any damaged header after the first for the end: the true one is a block of zeros."""
    if stream.last != bytes(_BLOCK):
        raise tarfile.ReadError(f"no end of archive after {last}")
    stream.header_room = None
    while piece := stream.read(READ_CHUNK):
        if piece.count(0) != len(piece):
            raise tarfile.ReadError(f"something follows the end of the archive, which is after {last}")
