"""Where objects are kept: one version per job, one writer per object."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pipeline.records import SubmissionMode


@dataclass(frozen=True)
class ContentFile:
    """One file of a version: its logical path in the object (`producer/a.jpg`, `system/mrt-erc.txt`)."""

    path: str
    source: Path
    size: int
    sha512: str
    mime_type: str = ""


@dataclass(frozen=True)
class StoreRequest:
    ark: str
    jid: str
    mode: SubmissionMode
    files: tuple[ContentFile, ...]
    delete: tuple[str, ...] = ()
    """Logical paths that an update takes out."""
    message: str = ""
    user: str = ""
    created: datetime | None = None


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


class Storage(Protocol):
    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Keep `request.files` as a new version; one that already carries this job's id is returned as is.

        `fence` is called right before the version becomes visible and raises if the attempt is over.
        add = exactly these files; update = these and the previous version's, less `delete`.
        """

    def version_of(self, ark: str, jid: str) -> StoredVersion | None:
        """The version that carries this job's id, if there is one."""

    def verify(self, version: StoredVersion) -> None:
        """Read the version back and compare every digest; StepFailed(system) names what differs."""
