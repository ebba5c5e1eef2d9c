"""Storage of objects: one version per job, one writer per object at a time.

The functions are rules for all kinds of storage: which requests are valid, and what an update carries over.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from pipeline import causes, names
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.deployment import StorageStore
from pipeline.errors import UsageRefused
from pipeline.fixity import ContentFile, OnRead, ReadBackFile, StoredFile, StoredVersion, ignore
from pipeline.outcome import caused_by, content, damaged, system
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind


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
    key: str = ""
    """The job's key; empty for a job of a release before 0.2.1."""
    message: str = ""
    user: str = ""
    created: datetime | None = None
    """None: the time of storing."""
    node: int | None = None
    """The profile's storage node, for services that have several."""
    recorded: int = 0
    """The last version of the object that the inventory has; storage may have one more."""

    @property
    def digests(self) -> dict[str, str]:
        """Logical path -> sha512."""
        return {file.path: file.sha512 for file in self.files}


@dataclass(frozen=True)
class VersionEntry:
    """A version as listed by storage; no file of the version has been read."""

    ark: str
    number: int = 0
    jid: str = ""
    """Empty if no job of arkline stored the version."""
    key: str = ""
    created: datetime | None = None
    url: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Logical path -> sha512, as listed by storage."""
    problem: str = ""
    """Why the object cannot be read; the other fields are then empty, and `ark` is the object's place."""


NOTHING_READ: Mapping[str, ReadBackFile] = MappingProxyType({})


@dataclass(frozen=True)
class OutgoingFile:
    """A file of a version that is being copied out of storage."""

    path: str
    pieces: Iterator[bytes]
    """The bytes, read lazily; to be consumed before the next file is requested.

    DamagedObject if the file is missing or cannot be read.
    """
    begin_at: Callable[[int], Iterator[bytes]] | None = None
    """The bytes from an offset on, instead of `pieces`; None if storage can only read from the start."""

    def read(self, start: int) -> Iterator[bytes]:
        """The bytes from the offset `start` on; to be used once, instead of `pieces`."""
        if start and self.begin_at is not None:
            yield from self.begin_at(start)
            return
        for piece in self.pieces:
            if start < len(piece):
                yield piece[start:]
            start = max(0, start - len(piece))


class Storage(Protocol):
    """What arkline asks of a storage; `pytest --arkline-storage` tests it (docs/developers/guests.md).

    A version is made as a whole or not at all, whatever moment its writer stops at, and a job has one version
    of its object. Whatever a method says, it raises ServiceDown while the place of the objects cannot be
    used, or is not that of the expected deployment; a service that keeps no deployment id cannot notice the
    latter. Damage is DamagedObject, and never content.

    Three promises are optional, since services exist that cannot give them:

    - every file name that arkline accepts is stored; without this, `check` refuses some as content;
    - attempts at one job at the same time make one version, although no fence stops one of them; without
      this, the lock of the object in the record and the fence alone keep a job from a second version;
    - `store` reads the earlier copies that a version relies on; without this, the next fixity check of the
      collection notices their damage.
    """

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """StepFailed if `store` would refuse the request for the object as it is; publishes nothing.

        Called before the version's identifier is published. A version that is already stored is accepted.
        """

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Store `request.files` as a new version; returns an existing version with this job's id unchanged.

        `verified` is set if the added files have been read back; otherwise the caller must `verify`.
        `fence` is called right before the version becomes visible, and raises if the attempt is over.
        add: exactly these files. update: these files and the depositor's files of the previous version,
        without `delete`. reset: exactly these files, for an object that exists; its history is kept.
        """

    def distinguishes_case(self) -> bool:
        """False if storage cannot hold two names that differ only in upper and lower case."""

    def node_of(self, node: int | None) -> int | None:
        """The storage node for a profile with node `node`; None if the service has no nodes."""

    def version_of(self, ark: str, jid: str, node: int | None = None, key: str = "") -> StoredVersion | None:
        """The job's version; None if there is none.

        StepFailed(system) if a version has the job's id and the key of another job.
        """

    def has_object(self, ark: str, node: int | None = None) -> bool:
        """Whether there is an object with this ARK."""

    def versions(self) -> Iterator[VersionEntry]:
        """All versions of all objects, the objects in no particular order; takes no lock.

        An unreadable object has one entry with a `problem`. UsageRefused if the service cannot list them.
        """

    def versions_of(self, ark: str, url: str = "") -> tuple[VersionEntry, ...]:
        """The versions of one object, as in `versions`; empty if there is no such object.

        `url`: the URL of one of its versions, for a service with several nodes. DamagedObject if the object
        cannot be read. A service that does not list jobs leaves `jid` empty.
        """

    def deployment_store(self) -> StorageStore | None:
        """The keeper of the deployment id; None if the service keeps none."""

    def read(
        self, ark: str, path: str, number: int | None = None, node: int | None = None, url: str = ""
    ) -> bytes | None:
        """Read a small file of the version (None: the latest), checked against the digest in storage.

        `url`: the URL of a version, which names the node for a service with several nodes. None if there is
        no such object, version or file; DamagedObject if storage lists the file and cannot deliver it.
        """

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Read back the files that the version added and compare digests; DamagedObject on a mismatch.

        Files of earlier versions must exist with their size; audits read them.
        """

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: OnRead = ignore,
        already: Mapping[str, ReadBackFile] = NOTHING_READ,
    ) -> Iterator[ReadBackFile]:
        """Read every byte of these versions (empty: all), file by file, ordered by version and path.

        `url` is the StoredVersion.url of a version. A file that storage lists but cannot deliver has a
        `problem`; a file that storage does not list is left out. `on_read` receives the bytes of every chunk.
        `already` maps `place` to results of an interrupted reading: those bytes are not read again.
        StepFailed if the storage service cannot be used, DamagedObject if the object's files cannot be
        listed, UsageRefused if the url belongs to another kind of storage. Takes no lock.
        """

    def problems_of(self, ark: str, url: str) -> tuple[str, ...]:
        """Damage to the files in which storage describes the object, one sentence per damage.

        Errors as in `read_back`. A service that does not expose these files has no problems.
        """

    def read_out(self, ark: str, url: str, number: int, path: str = "") -> Iterator[OutgoingFile]:
        """The files of a version, ordered by path, to be copied elsewhere; errors as in `read_back`.

        `path`: only this file, if the version has it. Storage that finds a file without listing the others
        yields it unseen: DamagedObject when it is read, if it is missing.
        """

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Remove unfinished versions of jobs that have ended; returns the ids of these jobs."""


def check_request(request: StoreRequest) -> None:
    """StepFailed if the request is invalid for every object."""
    if not re.fullmatch(r"\w+", request.jid):
        raise system(f"'{request.jid}' is not a job id")
    if not request.files:
        raise content(f"{request.ark} has no file to store: an object needs at least one").because(
            causes.NO_FILE()
        )
    check_names(file.path for file in request.files)


@caused_by(causes.NAME_REFUSED())
def check_names(paths: Iterable[str]) -> None:
    """StepFailed(content) unless all logical paths are safe and can be in one object together."""
    listed = tuple(paths)
    for path in listed:
        try:
            names.safe_name(path, stored=True)  # an update carries over what early releases stored
        except names.UnsafeName as error:
            raise content(str(error)) from error
    for clash in names.duplicates(listed, case_fold=False):
        raise content(f"the object cannot be stored: {clash.reason}")


@caused_by(causes.UPDATE_INVALID())
def carried_paths(request: StoreRequest, latest: int, paths: Collection[str]) -> set[str]:
    """The paths of the latest version that the request's version will also have.

    `latest` is the number of the object's latest version, 0 if there is no object; `paths` are its files.
    An update carries over the depositor's files; our own files describe one version and are rewritten.
    StepFailed if this object cannot accept the request; DamagedObject if storage has lost a version of it.
    """
    if latest < request.recorded:
        raise damaged(
            f"storage has {latest} of the {request.recorded} versions of {request.ark} that were stored: "
            "restore the object from a copy of the storage, then resume the job"
        )
    if request.new and latest:
        raise system(
            f"{request.ark} was just minted, but an object with this ARK exists: the counter of minted "
            "identifiers was reset; set it beyond the last ARK in storage, then submit again"
        ).because(causes.NUMBER_REUSED())
    if request.mode is SubmissionMode.RESET and not latest:
        raise content(nothing_to_reset(request.ark))
    if request.mode is not SubmissionMode.UPDATE:
        return set()
    for path in request.delete:
        if path not in paths:
            version = f"version {latest} of {request.ark}" if latest else f"{request.ark}, which is new"
            other = names.composed_otherwise(path, paths)
            why = f"; it {names.COMPOSED_OTHERWISE} from {names.quote_name(other)}, which is" if other else ""
            raise content(f"{names.quote_name(path)} cannot be deleted: it is not in {version}{why}")
    carried = {path for path in paths if path.startswith(names.PRODUCER)} - set(request.delete)
    if request.delete and not carried and not any(f.path.startswith(names.PRODUCER) for f in request.files):
        raise content(f"{request.ark} would have no files left: an object needs at least one")
    return carried


def nothing_to_reset(ark: str) -> str:
    return f"{ark} cannot be reset, because it does not exist: submit it with mode add"


def describe_mismatch(file: ContentFile | StoredFile, actual: tuple[int, str]) -> str:
    """How the `actual` size and sha512 differ from the file's."""
    size, sha512 = actual
    if size != file.size:
        return f"it has {size} bytes, not {file.size}"
    return f"its sha512 is {sha512}, not {file.sha512}"


def stored_elsewhere(ark: str, url: str, configured: str) -> UsageRefused:
    """The error for an object that is in another storage service than the settings name."""
    return UsageRefused(
        f"{ark} was stored at {url}, but the settings name {configured}: use the storage settings of the "
        "workers"
    )


@caused_by(causes.CONTENT_LOST(), FailureKind.SYSTEM)
def check_source(file: ContentFile, actual: tuple[int, str]) -> None:
    """StepFailed(system) if a file in working storage changed after its download."""
    if actual != (file.size, file.sha512):
        raise system(
            f"{file.source} changed after it was downloaded: {describe_mismatch(file, actual)}; "
            "delete the job and submit it again"
        )
