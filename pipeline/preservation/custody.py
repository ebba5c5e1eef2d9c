"""The custody of an object's files: their digests as declared, downloaded, stored, and read back now."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pipeline.fixity import OF_RECORD, ReadBackFile

SHA512 = f"{OF_RECORD}:"
"""The prefix of a digest of record."""


class Origin(StrEnum):
    """The known facts about the digest of a file at its source."""

    DECLARED = "declared"
    OF_CONTAINER = "declared for its container"
    NONE = "none declared"
    OURS = "made by arkline"
    UNKNOWN = "not recorded"


class Verdict(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    MISSING = "missing"
    UNKNOWN = "not in the inventory"
    NOT_READ = "not read"


@dataclass(frozen=True)
class Source:
    origin: Origin
    digest: str = ""
    """algorithm:value."""
    checked: bool = False
    """The digest was compared when the file, or its container, was downloaded."""
    declared_by: str = ""
    container: str = ""
    url: str = ""


@dataclass(frozen=True)
class Download:
    sha512: str
    at: datetime | None
    version: int
    jid: str


@dataclass(frozen=True)
class StorageRecord:
    """The stored file by the inventory, and the version that added its bytes."""

    sha512: str
    size: int
    version: int
    jid: str
    read_back: datetime | None
    """When that job had read the bytes back from storage."""


@dataclass(frozen=True)
class CustodyProblem:
    what: str
    remedy: str


@dataclass(frozen=True)
class FileCustody:
    version: int
    path: str
    source: Source
    download: Download | None
    storage: StorageRecord | None
    now: ReadBackFile | None
    verdict: Verdict
    problems: tuple[CustodyProblem, ...]


@dataclass(frozen=True)
class Custody:
    """The custody of some versions of an object."""

    versions: tuple[int, ...]
    began: datetime
    ended: datetime
    bytes_read: int
    read: bool
    """Storage was read; else the records were only compared with each other."""
    complete: bool
    """All requested versions were read."""
    agrees: bool
    """No problem was found in what was compared."""
    files: tuple[FileCustody, ...]
