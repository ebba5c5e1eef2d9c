"""Content sources: sizes, small documents and downloads over HTTP(S)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline.fixity import Digest


@dataclass(frozen=True)
class Download:
    """One file to fetch. `target` appears whole or not at all; unfinished bytes stay in `part`."""

    url: str
    target: Path
    part: Path
    digest: Digest | None = None
    size: int | None = None


@dataclass(frozen=True)
class Landed:
    """A file that arrived whole: its size and its digest of record (sha512), computed while it streamed."""

    path: Path
    size: int
    sha512: str


class Fetcher(Protocol):
    """Errors are StepFailed: `content` when the depositor must act, `transient` when time may heal it."""

    def size(self, url: str) -> int | None:
        """Bytes at `url`, by HEAD or the headers of a GET; None if the source does not say. Never raises."""

    def read(self, url: str, limit: int) -> bytes:
        """A small document, at most `limit` bytes."""

    def download(self, wanted: Download, alive: Callable[[], None]) -> Landed:
        """Fetch one file with retries and Range resume; digest and size are checked before it appears."""
