"""One file to fetch from a source, the limits on its bytes, and the file as it arrived."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.fixity import Digest, DigestMismatch
from pipeline.http.urls import redact_url
from pipeline.outcome import StepFailed, content, transient
from pipeline.sources.part import StreamDigester
from pipeline.states import FailureKind


def _any_size(_: int) -> None:
    """There is room for every size."""


class DocumentTooLarge(StepFailed):
    """A small document, as a manifest, that has more bytes than its reader accepts."""

    def __init__(self, name: str, has: str, limit: int) -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"{name} has {has}, but the limit is {limit:,}; "
            "divide it, or ask the operator for a higher limit",
        )


@dataclass(frozen=True)
class Download:
    """One file to fetch. `target` appears whole or not at all; unfinished bytes stay in `part`."""

    url: str
    target: Path
    part: Path
    digest: Digest | None = None
    size: int | None = None
    limit: int | None = None
    """Bytes accepted at most, whatever the source sends."""
    admit: Callable[[int], None] = _any_size
    """Called with the bytes that the file will have, before they are written; raises if there is no room."""
    draft: Path | None = None
    """Where a small file is written once it is whole, before it gets its name. Only if nothing is at `part`
    yet, nor beside it; the folders of `part` need not be there then, but that of `draft`."""

    @property
    def label(self) -> str:
        """The file as a message names it."""
        return f"{self.target.name} ({redact_url(self.url)})"

    def check_stated(self, total: int | None) -> None:
        """Raise unless the file may have the size that its source states, if the source states one."""
        if None not in (self.size, total) and total != self.size:
            raise content(self.size_differs(f"{total:,}"))
        self._check_limit(total or 0)
        self.admit(total or 0)

    def check_size(self, size: int) -> None:
        """Raise unless the file may have so many bytes; called before they are written."""
        if self.size is not None and size > self.size:
            raise content(self.size_differs(f"more than {self.size:,}"))
        self._check_limit(size)
        self.admit(size)

    def check_whole(self, size: int, digests: StreamDigester) -> None:
        """DigestMismatch unless the bytes that arrived are those that were declared."""
        if self.size is not None and size != self.size:
            raise DigestMismatch(self.size_differs(f"{size:,}"))
        if self.digest is not None:
            digests.check(self.digest, self.label)

    def size_differs(self, actual: str) -> str:
        return f"{self.label}: the source has {actual} bytes, but {self.size:,} were declared"

    def broken(self, fault: str) -> StepFailed:
        return transient(f"{redact_url(self.url)}: {fault}")

    def _check_limit(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            raise content(f"{self.label} has more than the {self.limit:,} bytes that are accepted")


@dataclass(frozen=True)
class Downloaded:
    """A file that arrived whole: its size and its digest of record (sha512), computed while it streamed."""

    size: int
    sha512: str
    is_web_page: bool = False
    name: str = ""
    """The name that the source states, if it states one that can be used."""
