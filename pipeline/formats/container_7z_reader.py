"""The program that reads a 7z archive for container_7z, in a process of its own.

    python container_7z_reader.py ARCHIVE MOST

It writes a line of JSON with the number of entries and, if there are no more than MOST, one for each of them:
[name, bytes, attributes or null, whether it is an empty folder]. After a line on its standard input it
writes the bytes of all that have a stream, in that order. Why it cannot goes to standard error: a word of
`Why`, or what py7zr says.

Rule: an archive can make this process fail, and do nothing else. The kernel bounds its memory and lets it
write no file.
"""

import io
import json
import resource
import signal
import sys
from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

MEMORY = 1 << 30
"""Bytes of memory: a dictionary of 256 MiB, the largest that 7-Zip chooses by itself, and py7zr's pieces."""

PIECE = 2048
"""Bytes given to the decoder at a time, of which at most 80 MB come. py7zr hands it more for each file of a
solid block, whether it needs them or not; so it may hold this much for each entry."""

NAME = 1025
"""Characters of a name that are told: one more than any name may have."""


class Why(StrEnum):
    MISSING = "py7zr is not installed"
    ENCRYPTED = "encrypted"
    MEMORY = "too much memory"
    METHOD = "unknown method"


class _Sparing(io.FileIO):
    """The archive, which hands out what it holds in small pieces once its directory was read."""

    piece = sys.maxsize

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.piece if size is None or size < 0 else min(size, self.piece)) or b""


def main(path: str, most: int) -> str | None:
    """Why it cannot be done, if so."""
    try:
        import py7zr
    except ModuleNotFoundError:
        return Why.MISSING
    _confine()
    told = {
        py7zr.exceptions.PasswordRequired: Why.ENCRYPTED,
        py7zr.exceptions.UnsupportedCompressionMethodError: Why.METHOD,
        MemoryError: Why.MEMORY,
    }
    try:
        return _read(path, most)
    except py7zr.exceptions.CrcError as error:
        return f"the checksum of {error.filename or 'a block'} is wrong"
    except Exception as error:  # noqa: BLE001 - py7zr meets hostile bytes here: what it says is told
        return told.get(type(error)) or f"{type(error).__name__}: {error}"


def _read(path: str, most: int) -> str | None:
    import py7zr

    with _Sparing(path) as file, py7zr.SevenZipFile(file) as archive:
        if archive.needs_password():
            return Why.ENCRYPTED
        _tell(archive, most)
        if sys.stdin.readline():
            file.piece = PIECE
            _stream(archive)
    return None


def _confine() -> None:
    for what, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the worker, which stops us


def _tell(archive: Any, most: int) -> None:
    """The entries; py7zr's values of them are not typed."""
    _say(len(archive.files))
    if len(archive.files) > most:
        sys.stdout.flush()
        return
    empty = iter(archive.header.files_info.emptyfiles if archive.header.files_info else ())
    for file in archive.files:
        # Without a stream it is a folder, unless it is said to be an empty file.
        folder = file.emptystream and not next(empty, False)
        _say([file.filename[:NAME], file.uncompressed, file.file_properties().get("attributes"), folder])
    sys.stdout.flush()


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


class _Out:
    """Where an entry's bytes go; a Py7zIO in all that is used of it."""

    def write(self, data: bytes) -> int:
        return sys.stdout.buffer.write(data)

    def seek(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        pass


class _InOrder:
    """A WriterFactory that sees that the entries come in the order in which they were told."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.awaited = deque(str(number) for number in numbers)

    def create(self, number: str) -> _Out:
        assert number == self.awaited.popleft(), "py7zr reads blocks in the order of the directory"
        return _Out()


def _stream(archive: Any) -> None:
    """As SevenZipFile.extract does, but by number: it renames what has the same name, and judges names."""
    from py7zr.exceptions import CrcError
    from py7zr.io import MemIO

    held = [file for file in archive.files if not file.emptystream]
    order: Any = _InOrder(file.id for file in held)
    for file in held:
        archive.worker.register_filelike(file.id, MemIO(str(file.id), order))
    archive.worker.extract(archive.fp, None, parallel=False)
    for file in held:
        # py7zr looks at a block's own checksum only if it has read the block's last byte.
        block = file.folder
        if file.crc32 is None and block.digestdefined and not block.decompressor.check_crc():
            raise CrcError(block.crc, block.decompressor.digest, file.filename)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
