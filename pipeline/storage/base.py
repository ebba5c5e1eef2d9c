"""Storage of objects: one version per job, one writer per object at a time."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.files import ContentFile, ReadBackFile, StoredVersion
from pipeline.records import SubmissionMode


@dataclass(frozen=True)
class StoreRequest:
    """A version to store for a job."""

    ark: str
    jid: str
    mode: SubmissionMode
    files: tuple[ContentFile, ...]
    delete: tuple[str, ...] = ()
    """Logical paths that an update removes."""
    new: bool = False
    """The ARK was minted for this job, so it is an error if the object exists."""
    message: str = ""
    user: str = ""
    created: datetime | None = None
    """None: the time of storing."""
    node: int | None = None
    """The profile's storage node, for services that have several."""

    @property
    def digests(self) -> dict[str, str]:
        """Logical path -> sha512."""
        return {file.path: file.sha512 for file in self.files}


OnRead = Callable[[int], None]
"""Gets the number of bytes of every piece that was read."""


def ignore(size: int) -> None:
    """An OnRead for callers that count nothing."""


class Storage(Protocol):
    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """StepFailed if `store` would refuse the request for the object as it is now; publishes nothing.

        Call this before the identifier of the version is published. A version that is stored already is not
        refused.
        """

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Store `request.files` as a new version; a version that already has this job's id is returned.

        `fence` is called right before the version becomes visible, and raises if the attempt is over.
        add: exactly these files. update: these files and the depositor's files of the previous version,
        without `delete`. reset: exactly these files, for an object that exists; its history is kept.
        """

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        """The version with this job's id; None if there is none."""

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        """A small file of the version (None: the latest), checked against the digest in storage.

        None if there is no such object, version or file; StepFailed(system) if the file is damaged.
        """

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Read back the files that the version added and compare digests; StepFailed(system) on a mismatch.

        Files of earlier versions must exist with their size; an audit reads them.
        """

    def read_back(
        self, ark: str, url: str, numbers: Collection[int] = (), on_read: OnRead = ignore
    ) -> Iterator[ReadBackFile]:
        """Read every byte of these versions (empty: all), file by file, ordered by version and path.

        `url` is the StoredVersion.url of a version. A file that storage lists but cannot deliver has a
        `problem`; a file that storage does not list is left out. `on_read` gets the number of bytes of every
        piece. StepFailed if the storage service cannot be used, UsageRefused if the url belongs to another
        kind of storage. Takes no lock.
        """

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Remove unfinished versions of jobs that have ended; returns the ids of these jobs."""
