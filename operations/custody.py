"""The custody of an object's files: what was declared, what landed, what was stored, what storage has now."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pipeline.fixity import OF_RECORD

SHA512 = f"{OF_RECORD}:"
"""How a digest of record begins."""


class Origin(StrEnum):
    """What is known of a file's digest at its source."""

    DECLARED = "declared"
    OF_CONTAINER = "declared of its container"
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
    """It was compared when the file, or its container, arrived."""
    declared_by: str = ""
    container: str = ""
    url: str = ""


@dataclass(frozen=True)
class Landing:
    sha512: str
    at: datetime | None
    version: int
    jid: str


@dataclass(frozen=True)
class Kept:
    """What the inventory says is stored, and which version brought the bytes."""

    sha512: str
    size: int
    version: int
    jid: str
    read_back: datetime | None
    """When that job had read them back from storage."""


@dataclass(frozen=True)
class Now:
    at: datetime
    size: int | None
    sha512: str | None
    problem: str
    place: str


@dataclass(frozen=True)
class Problem:
    what: str
    remedy: str


@dataclass(frozen=True)
class FileCustody:
    version: int
    path: str
    source: Source
    landing: Landing | None
    storage: Kept | None
    now: Now | None
    verdict: Verdict
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Custody:
    """Of some versions."""

    versions: tuple[int, ...]
    began: datetime
    ended: datetime
    bytes_read: int
    read: bool
    """Storage was asked; else the records were only compared with each other."""
    complete: bool
    """All that was asked for was read."""
    agrees: bool
    """No file has a problem, as far as was looked."""
    files: tuple[FileCustody, ...]
