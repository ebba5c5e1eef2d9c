"""The inventory of the repository: its objects, versions and files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.checks import CheckRun, CheckSummary, CheckVerdict
from pipeline.fixity import StoredFile, StoredVersion


@dataclass(frozen=True, slots=True)
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
    """A version to record in one transaction."""

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
    key: str = ""
    """The job's key; empty for a job of a release before 0.2.1."""
    depositor: str = ""
    """The identity of who submitted it; empty if that is not known."""
    checks: tuple[CheckRun, ...] = ()
    """The checks of the deposit so far."""

    def type_of(self, file: StoredFile) -> str:
        """The MIME type of a file of the version."""
        return self.mime_types.get(file.path, "application/octet-stream")


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A finding of a check's last run in a file."""

    check: str
    verdict: CheckVerdict
    """`fine`, `found` or `unchecked`."""
    code: str
    """The name of a virus, a format such as `fmt/40`, or why the file was not checked."""
    message: str


@dataclass(frozen=True, slots=True)
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
    findings: tuple[FileFinding, ...] = ()
    """The findings of every check's last run. A check that is missing here has no finding for the file."""


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
    recorded: datetime | None
    """When the version was entered in the inventory; None if a release before 0.2.1 entered it."""
    files: tuple[InventoryFile, ...]
    checks: tuple[CheckSummary, ...] = ()
    """In the order in which they were entered."""


@dataclass(frozen=True)
class FixityProof:
    """The place of an object in the fixity schedule."""

    since: datetime
    """The start of the period within which the object is read again."""
    checked: datetime | None
    """The end of the last complete reading; None if there was none."""
    proved: datetime | None
    """The start of the last complete reading that found no damage."""
    versions: int
    files: int
    bytes: int
    damaged: int
    """Files and descriptions that the last reading found to be damaged."""


DESCRIPTION = "the description of the object"
"""The files in which storage describes an object, in a sentence for people."""


@dataclass(frozen=True)
class DamagedFile:
    """Damage that a check or a download met.

    `path` is empty if it is in the description of the object in storage or, for a copy of all files, unknown.
    """

    version: int
    path: str
    what: str
    remedy: str

    @property
    def place(self) -> str:
        """What is damaged, for people: the description is of no version."""
        return f"{self.path} of version {self.version}" if self.path else DESCRIPTION


@dataclass(frozen=True)
class PreservationEvent:
    """An event in the life of a stored object, as PREMIS has them."""

    id: int
    """Given by the inventory; 0 before."""
    ark: str
    type: str
    at: datetime
    agent: str
    outcome: str
    """`pass` or `fail`."""
    damaged: int
    files: tuple[DamagedFile, ...]
    """At most a hundred of the damaged files."""
    reported: datetime | None
    """When the notice to the operator was sent; the time of the event if it needs no notice."""
    version: int | None = None
    """The version that the event concerns; None: all versions."""
    note: str = ""
    """Of a dissemination, what was asked for. Up to 0.3.0, a failed one has its damage here."""


@dataclass(frozen=True)
class Embargo:
    """Until it ends, files of the object are given to operators alone."""

    until: datetime | None
    """None: it is not known when, because the file of the embargo was not read yet or cannot be."""

    def holds(self, at: datetime) -> bool:
        return self.until is None or at < self.until


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
    fixity: FixityProof | None
    """None if the object is not in the fixity schedule yet."""
    events: tuple[PreservationEvent, ...]
    """The latest events, oldest first."""
    embargo: Embargo | None = None
    """None if the current version has none."""

    @property
    def is_damaged(self) -> bool:
        """Whether the last check of the object found damage."""
        return self.fixity is not None and self.fixity.damaged > 0
