"""The interface of a container format: recognition and entries."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pipeline.fixity import READ_CHUNK
from pipeline.names import quote_name

_HERE = re.compile(r"\A(?:\./+)+")


def from_here(name: str) -> str:
    """Strip the `./` that programs write before entries of the folder `.`: `./a`, `.//a`, `././a` are `a`."""
    return _HERE.sub("", name)


@dataclass(frozen=True)
class Archive:
    """A container to read, and the limits for reading it."""

    path: Path
    name: str
    """The depositor's name for the container."""
    max_entries: int
    max_bytes: int
    """Bytes that the container may unpack to."""
    name_encoding: str = ""
    """The encoding of names that declare none; empty: the format's own rule."""

    @property
    def title(self) -> str:
        """The container's name for messages."""
        return f"container {quote_name(self.name)}"


@dataclass(frozen=True)
class Entry:
    """One entry of a container: its name as given, its content, and why it is refused, if it is."""

    name: str
    is_folder: bool
    refused: str | None
    open: Callable[[], IO[bytes] | io.BufferedIOBase]
    chunk: int = READ_CHUNK
    """Bytes to read at a time."""
    name_encoding: str = ""
    """The encoding assumed for the name, if the container does not declare it."""
    raw_name: bytes = b""
    """The name's packed bytes, in that case."""


class Format(Protocol):
    """A container format. Headers are not trusted: no buffer is allocated by a size that a header claims."""

    def recognizes(self, archive: Archive, head: bytes) -> bool:
        """Whether the archive is of this format; `head` is its first 512 bytes."""

    def entries(self, archive: Archive) -> AbstractContextManager[Iterator[Entry]]:
        """The entries in sequence, read once and forward only.

        A damaged or truncated archive raises what its library raises (see pipeline.containers.unpack).
        """
