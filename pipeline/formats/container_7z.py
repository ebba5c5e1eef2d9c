"""The entries of a 7z archive, which a process of its own reads by py7zr.

Rule: as in container_formats, an archive is not believed. py7zr makes objects of a directory before anyone
can count them, and its decoders are native code; a process whose memory the kernel bounds may do that, and
is ended with the attempt. What comes out of it is judged here.
"""

import contextlib
import io
import json
import os
import selectors
import signal
import stat
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, cast

from pipeline.fixity import PIECE
from pipeline.formats.container_7z_reader import MEMORY, Why
from pipeline.formats.container_entry import Entry
from pipeline.names import PRODUCER, UnsafeName, safe_name, shown
from pipeline.outcome import content, system, transient

MAGIC = b"7z\xbc\xaf\x27\x1c"

READER = (sys.executable, "-P", "-B", str(Path(__file__).with_name("container_7z_reader.py")))

SILENCE = 600.0
"""Seconds without a byte after which the reader is given up; it writes several times a second."""

_BEGINNING = struct.Struct("<6s2xLQQL")
"""Magic, version, checksum of the rest; the directory's place, length and checksum."""

_REST = 12
_LINE = 1 << 14
_UNIX = 0x8000
_REPARSE_POINT = 0x400
_DIRECTORY = 0x10
_STOPPED = (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT)


class Damaged(ValueError):
    """It is not a whole 7z archive; the message says how that was seen."""


@contextlib.contextmanager
def entries(
    archive: Path,
    name: str,
    most: int,
    alive: Callable[[], None],
    reader: tuple[str, ...] = READER,
    silence: float = SILENCE,
) -> Iterator[Iterator[Entry]]:
    if not _has_directory(archive):
        yield iter(())
        return
    command = [*reader, str(archive), str(most)]
    with subprocess.Popen(  # noqa: S603 - our own program, and a path that we chose
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # What reads hostile bytes is not told the passwords among the settings.
        env={name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")},
    ) as process:
        try:
            with _Reader(process, name, alive, silence) as opened:
                yield _entries(opened, name, most)
        finally:
            process.kill()


def _has_directory(archive: Path) -> bool:
    with archive.open("rb") as file:
        head = file.read(_BEGINNING.size)
        length = os.fstat(file.fileno()).st_size
    if len(head) < _BEGINNING.size:
        raise Damaged("it ends within its first header")
    _, checksum, place, size, _ = _BEGINNING.unpack(head)
    if checksum != zlib.crc32(head[_REST:]):
        raise Damaged("its first header is damaged")
    end = _BEGINNING.size + place + size
    if end > length:
        raise Damaged(f"it is cut off after {length:,} bytes of {end:,}, or is the first of several volumes")
    if end < length:
        raise Damaged("something follows its end")
    return bool(size)


class _Reader:
    """The process's output, waited for while the attempt is alive."""

    def __init__(
        self, process: subprocess.Popen[bytes], name: str, alive: Callable[[], None], silence: float
    ) -> None:
        self._process = process
        self._name = name
        self._alive = alive
        self._silence = silence
        self._ahead = b""
        assert process.stdout is not None
        self._output = process.stdout.fileno()
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._output, selectors.EVENT_READ)

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._ready.close()

    def line(self) -> str:
        while b"\n" not in self._ahead:
            self._ahead += self.piece(PIECE)
            if len(self._ahead) > PIECE + _LINE:
                raise Damaged("its reader makes no sense")
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line.decode()

    def go_on(self) -> None:
        if self._ahead:
            raise Damaged("its reader makes no sense")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it has to say is read next
            self._process.stdin.write(b"\n")

    def end(self) -> None:
        """Once all was read: it has nothing more to say, and found nothing wrong."""
        if self._wait(1):
            raise Damaged("it holds more than its directory lists")
        if self._process.wait(self._silence) != 0:
            raise self._failure()

    def piece(self, most: int) -> bytes:
        """At least one byte of what comes next, lines apart."""
        piece = self._wait(most)
        if not piece:
            self._process.wait(self._silence)
            raise self._failure()
        return piece

    def _wait(self, most: int) -> bytes:
        given_up = time.monotonic() + self._silence
        while not self._ready.select(min(1.0, self._silence)):
            self._alive()
            if time.monotonic() > given_up:
                raise transient(
                    f"nothing came out of container {shown(self._name)} for {self._silence:.0f} seconds"
                )
        return os.read(self._output, most)

    def _failure(self) -> Exception:
        assert self._process.stderr is not None
        code = self._process.returncode
        if code < 0 and -code in _STOPPED:
            return transient(f"the reader of container {shown(self._name)} was ended by signal {-code}")
        said = self._process.stderr.read().decode(errors="replace").strip()
        return _failure(said or f"its reader ended with code {code}", self._name)


def _failure(said: str, name: str) -> Exception:
    container = f"container {shown(name)}"
    match said:
        case Why.MISSING:
            return system(
                f"{container} is a 7z archive, which this installation does not read. Operator: pip install "
                "'arkline[sevenzip]' for every worker and resume the job. Depositor: or submit it as .zip or "
                ".tar.gz"
            )
        case Why.ENCRYPTED:
            return content(f"{container} is encrypted; pack it without a password")
        case Why.MEMORY:
            return content(
                f"{container} needs more than {MEMORY >> 20} MiB of memory to unpack: pack it with a smaller "
                "dictionary, or as .zip or .tar.gz"
            )
        case Why.METHOD:
            return content(
                f"{container} is compressed by a method that is not read: pack it by LZMA2, programs without "
                "the filter BCJ2 (7z -m0=lzma2 -mf=off), or as .zip or .tar.gz"
            )
        case _:
            return Damaged(said.splitlines()[-1][:500])


def _entries(opened: _Reader, name: str, most: int) -> Iterator[Entry]:
    """What has no bytes or cannot be taken comes first: it is judged before anything is unpacked."""
    count = int(opened.line())
    if count > most:
        raise content(f"container {shown(name)} has more than {most} entries: divide it")
    held: list[tuple[str, int]] = []
    for _ in range(count):
        entry, size = _entry(opened.line())
        if size == 0 or entry.refused or not _is_safe(entry.name):
            yield entry
        else:
            held.append((entry.name, size))
    opened.go_on()
    for path, size in held:
        yield Entry(path, is_folder=False, refused=None, open=partial(_content, opened, size))
    opened.end()


def _entry(line: str) -> tuple[Entry, int]:
    name, size, attributes, empty_folder = json.loads(line)
    mode = attributes >> 16 if attributes and attributes & _UNIX else 0
    folder = stat.S_ISDIR(mode) or bool(attributes and attributes & _DIRECTORY)
    if attributes is None:
        folder = empty_folder
    if size < 0 or (folder and size):
        raise Damaged(f"{shown(name)} cannot have {size} bytes")
    return Entry(name.removesuffix("/"), folder, _refusal(mode, attributes or 0), io.BytesIO), size


def _refusal(mode: int, attributes: int) -> str | None:
    if stat.S_ISLNK(mode) or attributes & _REPARSE_POINT:
        return "is a symbolic link; put the file itself there"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    return None


def _is_safe(name: str) -> bool:
    try:
        safe_name(name, PRODUCER)
    except UnsafeName:
        return False
    return True


def _content(opened: _Reader, size: int) -> IO[bytes]:
    return cast(IO[bytes], _Content(opened, size))


class _Content(io.RawIOBase):
    """The next `size` bytes of the reader's output."""

    def __init__(self, opened: _Reader, size: int) -> None:
        self._opened = opened
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        if not self._left:
            return b""
        piece = self._opened.piece(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece
