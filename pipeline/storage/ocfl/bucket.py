"""What an OCFL store needs of a bucket, which keeps whole files under keys and cannot rename.

Rule: nothing is written over what was not seen. A write says which entity tag the key has to have, or that
it has to be free; so a writer that was stopped and wakes up late cannot replace what others wrote since.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pipeline.attempt import Attempt

AT_ONCE = 8
"""Requests at the same time: they wait for the server far longer than they work."""


class Conflict(Exception):
    """The key does not hold what it held when it was looked at; nothing was written."""


class Unlike(Exception):
    """A file to be uploaded does not have the size and digest that it was handed over with."""

    def __init__(self, size: int, sha512: str) -> None:
        super().__init__(f"{size} bytes, sha512 {sha512}")
        self.found = (size, sha512)


@dataclass(frozen=True)
class Held:
    """What is listed under a key."""

    size: int
    etag: str


@dataclass(frozen=True)
class Got:
    """What was read from a key, at one moment."""

    data: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class Bucket(Protocol):
    @property
    def name(self) -> str:
        """For people: which bucket, on which server."""

    @property
    def url(self) -> str:
        """Where keys begin."""

    def get(self, key: str) -> Got | None:
        """A small file, whole."""

    def digest(self, key: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        """Size and sha512 of what is read from the key; `on_read` gets the bytes of every piece."""

    def put(self, key: str, data: bytes, seen: str | None, metadata: Mapping[str, str] = ...) -> None:
        """Write; Conflict unless the key has the entity tag `seen`, or is free if that is None."""

    def upload(self, key: str, source: Path, size: int, sha512: str, attempt: Attempt) -> None:
        """Write a file of any size to a free key; Unlike if it is not what it should be, Conflict if taken.

        When it returns, the server has confirmed the digests of what arrived, or it was read back.
        """

    def keys(self, prefix: str) -> dict[str, Held]:
        """All keys below, with the prefix."""

    def names(self, limit: int) -> list[str]:
        """Some of the names at the top, files and folders."""

    def delete(self, key: str) -> None: ...

    def drop_uploads(self, prefix: str) -> None:
        """Forget what uploads that were never ended left below."""
