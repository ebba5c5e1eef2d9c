"""Files on their way into storage and as storage has them: values without input or output."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class ContentFile:
    """One file of a version: its logical path in the object (`producer/a.jpg`, `system/mrt-erc.txt`)."""

    path: str
    source: Path
    size: int
    sha512: str
    mime_type: str = ""


@dataclass(frozen=True)
class StoredFile:
    path: str
    size: int
    sha512: str
    added: bool
    """True if this version brought the bytes; False if an earlier version holds them."""


@dataclass(frozen=True)
class StoredVersion:
    ark: str
    number: int
    jid: str
    created: datetime
    files: tuple[StoredFile, ...]
    url: str
    verified: datetime | None = field(default=None, compare=False)
    """When all that it brought had been read back, if that is known."""


@dataclass(frozen=True)
class FoundFile:
    """One file of a version as it was read from storage at that moment."""

    number: int
    path: str
    at: datetime
    size: int | None = None
    sha512: str | None = None
    problem: str = ""
    """Why its bytes could not be read; size and sha512 are None then."""
    place: str = ""
    """Where storage has the bytes, for who has to restore them."""
