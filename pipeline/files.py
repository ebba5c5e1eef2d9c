"""Files before and after they are stored, as values."""

import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

PRIVATE = 0o027
"""The umask of every process: deposits and databases are for their user and group alone."""


def keep_private() -> None:
    """Let other users of this machine read nothing that this process and its children create."""
    os.umask(os.umask(PRIVATE) | PRIVATE)


@dataclass(frozen=True)
class ContentFile:
    """One file of a version: its logical path in the object (`producer/a.jpg`, `system/mrt-erc.txt`)."""

    path: str
    source: Path
    """Its place in working storage."""
    size: int
    sha512: str
    mime_type: str = ""
    data: bytes | None = field(default=None, repr=False)
    """The bytes of a small file that we compose ourselves: then nothing is at `source` yet."""


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
    key: str = ""
    """Of the job; empty for a job of a release before 0.2.1."""
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
