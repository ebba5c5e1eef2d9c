"""Files before and after they are stored, as values."""

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
    """True if this version added the bytes; False if an earlier version has them."""


@dataclass(frozen=True)
class StoredVersion:
    ark: str
    number: int
    jid: str
    created: datetime
    files: tuple[StoredFile, ...]
    url: str
    verified: datetime | None = field(default=None, compare=False)
    """When the files that it added were read back; None if that is not known."""


@dataclass(frozen=True)
class ReadBackFile:
    """A file of a version as it was read back from storage."""

    number: int
    path: str
    at: datetime
    size: int | None = None
    sha512: str | None = None
    problem: str = ""
    """Why the bytes could not be read; then size and sha512 are None."""
    place: str = ""
    """The place of the bytes in storage, for the person who restores them."""
