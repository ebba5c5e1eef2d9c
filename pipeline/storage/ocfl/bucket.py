"""The interface of a bucket for an OCFL store. A bucket stores whole files under keys and cannot rename them.

Rule: every write is conditional. It names the entity tag that the key must have, or requires that the key is
free; so a writer that was paused cannot replace what others have written since.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pipeline.attempt import Attempt

CONNECTIONS = 8
"""Parallel requests of one job: a request spends most of its time waiting for the server."""


class Conflict(Exception):
    """The key has changed since it was read; nothing was written."""


class DigestMismatch(Exception):
    """A file to upload does not have its expected size and digest."""

    def __init__(self, size: int, sha512: str) -> None:
        super().__init__(f"{size} bytes, sha512 {sha512}")
        self.actual = (size, sha512)


@dataclass(frozen=True)
class KeyInfo:
    """A key in a listing."""

    size: int
    etag: str


@dataclass(frozen=True)
class KeyContent:
    """The content of a key at one moment."""

    data: bytes
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)


class Bucket(Protocol):
    @property
    def name(self) -> str:
        """The bucket and its server, for messages."""

    @property
    def url(self) -> str:
        """The URL that keys are relative to."""

    def get(self, key: str) -> KeyContent | None:
        """A small file; None if the key is free."""

    def digest(self, key: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        """Size and sha512 of the content, None if the key is free; `on_read` gets the size of every piece."""

    def put(self, key: str, data: bytes, etag: str | None, metadata: Mapping[str, str] = ...) -> None:
        """Write; Conflict unless the key has this entity tag, or is free if `etag` is None."""

    def upload(self, key: str, source: Path, size: int, sha512: str, attempt: Attempt) -> None:
        """Write a file to a free key; DigestMismatch if the file changed, Conflict if the key is taken.

        On return, the server has confirmed the digests of what arrived, or the content was read back.
        """

    def keys(self, prefix: str) -> dict[str, KeyInfo]:
        """All keys with this prefix."""

    def names(self, limit: int) -> list[str]:
        """Up to `limit` names at the top level, of files and folders."""

    def delete(self, key: str) -> None: ...

    def drop_uploads(self, prefix: str) -> None:
        """Remove the parts of unfinished uploads with this prefix."""
