"""The inventory of the repository: its objects, versions and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipeline.files import StoredVersion


@dataclass(frozen=True)
class Provenance:
    """Where a depositor's file came from, and its digests."""

    sha512: str
    """Computed while the file was downloaded."""
    digest: str | None = None
    """The declared digest, algorithm:value, checked on download; empty: none declared; None: not known."""
    declared_by: str = ""
    """Where the digest was declared, in words."""
    container: str = ""
    """The container, if the digest is that of a container; else empty."""
    url: str = ""


@dataclass(frozen=True)
class Recording:
    """A version to enter in one transaction."""

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
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Logical path -> provenance, for the files that were downloaded for this job."""
    downloaded: datetime | None = None
    """When all files were downloaded; None if that is not known, and then `provenance` is empty."""


class Inventory(Protocol):
    """Errors are StepFailed: `content` if identifiers conflict, `transient` if a retry may succeed."""

    def record(self, recording: Recording) -> None:
        """Enter a version; idempotent by job."""

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """Local id -> ARK, for the local ids of this owner that are known."""

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        """All local ids of the object, in the order in which they were recorded."""

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        """Reserve these local ids of this owner for `ark`, all or none; called before anything is stored.

        Idempotent. StepFailed(content), naming the id and the other ARK, if a local id belongs to another
        object, or if the object belongs to another owner.
        """


@dataclass(frozen=True)
class InventoryFile:
    path: str
    size: int
    added: bool
    """True if this version added the bytes."""
    mime_type: str
    digest: str
    """algorithm:value."""
    provenance: Provenance | None = None
    """None if the file was not downloaded for this version, or if that was not recorded."""


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
    downloaded: datetime | None
    """When its files were downloaded; None if that was not recorded, and then files have no provenance."""
    verified: datetime | None
    """When the version was read back from storage; None if that was not recorded."""
    files: tuple[InventoryFile, ...]


@dataclass(frozen=True)
class InventoryObject:
    """Everything that the inventory has about an object; versions in order."""

    ark: str
    owner: str
    collections: tuple[str, ...]
    local_id: tuple[str, ...]
    object_type: str
    object_role: str
    aggregate_role: str
    erc: tuple[tuple[str, str], ...]
    """The ERC of the latest version."""
    created: datetime
    modified: datetime
    versions: tuple[InventoryVersion, ...]
