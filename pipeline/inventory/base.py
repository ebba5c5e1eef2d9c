"""The inventory: which objects, versions and files the repository holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipeline.files import StoredVersion


@dataclass(frozen=True)
class Provenance:
    """How a file of the depositor arrived."""

    sha512: str
    """Computed while its bytes came in."""
    digest: str | None = None
    """What was declared, algorithm:value, and checked then; empty if nothing was, None if that is unknown."""
    declared_by: str = ""
    """Where, in words."""
    container: str = ""
    """The container that the digest is of; empty if it is the file's own."""
    url: str = ""


@dataclass(frozen=True)
class Recording:
    """One version to be entered, in one transaction."""

    version: StoredVersion
    mime_types: dict[str, str]
    """Logical path -> MIME type."""
    owner: str
    collections: tuple[str, ...]
    local_id: tuple[str, ...]
    erc: tuple[tuple[str, str], ...]
    """(element, value) in order: who, what, when, where, where."""
    object_type: str
    object_role: str
    aggregate_role: str
    profile: str
    bid: str
    jid: str
    submitter: str
    payload_name: str
    ingest_type: str
    submitted: datetime
    note: str = ""
    arrivals: Mapping[str, Provenance] = field(default_factory=dict)
    """Logical path -> how that file arrived with this job."""
    landed: datetime | None = None
    """When all of them had; None if that is no longer known, nor then how."""


class Inventory(Protocol):
    """Errors are StepFailed: `content` when identifiers contradict each other, `transient` if it may pass."""

    def record(self, recording: Recording) -> None:
        """Enter a version; entering the same job's version again changes nothing."""

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """The ARK that each known local id of this owner names; unknown ones are left out."""

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        """All local ids that name this object, in the order in which they became known."""

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        """Make these local ids of this owner name `ark`, all or none; to be called before anything is stored.

        Again is the same as once. StepFailed(content), naming the id and the other ARK, if one is taken,
        and if the object itself belongs to another owner.
        """


@dataclass(frozen=True)
class InventoryFile:
    path: str
    size: int
    added: bool
    """True if this version brought the bytes."""
    mime_type: str
    digest: str
    """algorithm:value."""
    arrival: Provenance | None = None
    """None if it did not arrive with this version, or that was not recorded."""


@dataclass(frozen=True)
class InventoryVersion:
    number: int
    created: datetime
    note: str
    jid: str
    bid: str
    profile: str
    submitter: str
    payload_name: str
    submitted: datetime
    storage_url: str
    landed: datetime | None
    """When its files had arrived; None if that was not recorded, nor then how they did."""
    verified: datetime | None
    """When storage was read back, if that was recorded."""
    files: tuple[InventoryFile, ...]


@dataclass(frozen=True)
class InventoryObject:
    """Everything the inventory knows of one object, versions in order."""

    ark: str
    owner: str
    collections: tuple[str, ...]
    local_id: tuple[str, ...]
    object_type: str
    object_role: str
    aggregate_role: str
    erc: tuple[tuple[str, str], ...]
    """That of the latest version."""
    created: datetime
    modified: datetime
    versions: tuple[InventoryVersion, ...]
