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
    """`./a`, `.//a` and `././a`, as programs write the entries of the folder `.`, are a."""
    return _HERE.sub("", name)


@dataclass(frozen=True)
class Archive:
    """A container to read, and how much reading it may cost."""

    path: Path
    name: str
    """The depositor's name for the container."""
    max_entries: int
    max_bytes: int
    """Bytes that it may unpack to."""
    name_encoding: str = ""
    """The encoding of names that do not say theirs; empty: the format's own rule."""

    @property
    def title(self) -> str:
        """The container in a message."""
        return f"container {quote_name(self.name)}"


@dataclass(frozen=True)
class Entry:
    """One entry of a container: its name as given, its bytes, and why it is refused, if it is."""

    name: str
    is_folder: bool
    refused: str | None
    open: Callable[[], IO[bytes] | io.BufferedIOBase]
    chunk: int = READ_CHUNK
    """Bytes to read at a time."""
    name_encoding: str = ""
    """The encoding as which the name was read, if the container does not say it."""
    raw_name: bytes = b""
    """The name as packed, in that case."""


class Format(Protocol):
    """A container format. A header may lie: no buffer is allocated by a size that a header claims."""

    def recognizes(self, archive: Archive, head: bytes) -> bool:
        """Whether the archive is of this format; `head` is its first 512 bytes."""

    def entries(self, archive: Archive) -> AbstractContextManager[Iterator[Entry]]:
        """The entries one after the other, read once and forward.

        A damaged or truncated archive raises what its library raises (see pipeline.containers.unpack).
        """
