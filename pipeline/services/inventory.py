"""The inventory: which objects, versions and files the repository holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pipeline.services.storage import StoredVersion


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


class Inventory(Protocol):
    def record(self, recording: Recording) -> None:
        """Enter a version; entering the same job's version again changes nothing."""

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """The ARK that each known local id of this owner names; unknown ones are left out."""
