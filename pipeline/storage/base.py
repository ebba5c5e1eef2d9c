"""Where objects are kept: one version per job, one writer per object."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.files import ContentFile, FoundFile, StoredVersion
from pipeline.records import SubmissionMode


@dataclass(frozen=True)
class StoreRequest:
    ark: str
    jid: str
    mode: SubmissionMode
    files: tuple[ContentFile, ...]
    delete: tuple[str, ...] = ()
    """Logical paths that an update takes out."""
    new: bool = False
    """The ARK was minted for this job: that there is such an object already is then an error."""
    message: str = ""
    user: str = ""
    created: datetime | None = None
    node: int | None = None
    """The profile's storage node, where storage has several."""


class Storage(Protocol):
    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """StepFailed if `store` would refuse this as the object is now; nothing becomes visible.

        To be asked before the world is told of the version. One that is stored already is not refused.
        """

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Keep `request.files` as a new version; one that already carries this job's id is returned as is.

        `fence` is called right before the version becomes visible and raises if the attempt is over.
        add = exactly these files; update = these and the depositor's of the previous version, less `delete`;
        reset = exactly these files, of an object that is there: a new beginning, with its history kept.
        """

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        """The version that carries this job's id, if there is one."""

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        """One small file of the version (None: of the latest), with the digest that storage has of it.

        None if there is no such object, version or file; StepFailed(system) if it is damaged.
        """

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Read back what the version brought and compare every digest; StepFailed(system) names what differs.

        What earlier versions hold has to be there with its size; an audit reads it.
        """

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: Callable[[int], None] = lambda _: None,
    ) -> Iterator[FoundFile]:
        """Read every byte of these versions (of none: of all), a file at a time, by version and path.

        `url` is what storage answered when a version was stored (StoredVersion.url). What storage itself
        lists and cannot hand over has a `problem`; what it does not list does not come. `on_read` gets
        the bytes of every piece that was read. StepFailed if storage as a whole cannot be asked, UsageRefused
        if the url is of another kind of storage. No lock is taken.
        """

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Remove what jobs that have ended left where versions are prepared; their ids."""
