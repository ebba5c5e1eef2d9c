"""What can be wrong in record, storage and inventory, as facts, and the state that a check's parts share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.identifiers import noid
from pipeline.inventory.sql import SqlInventory
from pipeline.records import Record, number_of
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from zkstate.connection.session import Session


class StoreProblem(StrEnum):
    """Codes are stable: scripts and alerts read them."""

    INCONSISTENT = "inconsistent"
    """The record contradicts itself at `path`; `reason` says how."""
    NOT_ENTERED = "not-entered"
    """Storage has a version that the inventory lacks, and that no job at work will enter."""
    NOT_RESERVED = "not-reserved"
    """Storage has the version of a job in flight, whose ARK or local ids the inventory does not reserve."""
    NO_JOB = "no-job"
    """Storage has a version that no job of arkline stored."""
    DELETED_JOB = "deleted-job"
    """Storage has a version whose job failed and was deleted."""
    UNDESCRIBED = "undescribed"
    """Storage has a version that the inventory lacks and cannot take over; `reason` says why."""
    OTHER_OBJECT = "other-object"
    """The inventory has the job's version under another ARK, or from another job of this number."""
    DIFFERENT = "different"
    """Storage and inventory have this version from two jobs, or with other digests."""
    NOT_STORED = "not-stored"
    """The inventory has a version that storage lacks."""
    UNREADABLE = "unreadable"
    """Storage has an object that cannot be read; `reason` says why."""
    DAMAGED = "damaged"
    """The bytes in storage do not have the digests of the inventory."""
    LOST = "lost"
    """A job is completed, and neither storage nor the inventory has its version."""
    NUMBERS = "numbers"
    """A counter of the record is behind numbers that a store knows."""
    RESERVED = "reserved"
    """The sum of the reservations of working storage is damaged or wrong."""
    OUTDATED = "outdated"
    """Record and inventory do not have the same mark: one of them was restored."""


BROKEN = frozenset(
    {
        StoreProblem.OTHER_OBJECT,
        StoreProblem.DIFFERENT,
        StoreProblem.NOT_STORED,
        StoreProblem.UNREADABLE,
        StoreProblem.DAMAGED,
        StoreProblem.LOST,
    }
)
"""Storage does not have what was stored."""

REPAIRABLE = frozenset(
    {
        StoreProblem.NOT_ENTERED,
        StoreProblem.NOT_RESERVED,
        StoreProblem.NUMBERS,
        StoreProblem.RESERVED,
        StoreProblem.OUTDATED,
    }
)


class NotCompared(StrEnum):
    """What a service that cannot list its objects keeps a check from. Codes are stable."""

    UNKNOWN_VERSIONS = "unknown-versions"
    """Versions in Merritt's storage service that neither the inventory nor a job knows."""
    INVENTORY_SERVICE = "inventory-service"
    """The entries of Merritt's inventory service; only our own inventory was compared."""


class Difference(Record):
    gap: StoreProblem
    path: str = ""
    """The znode of the record, for a record that contradicts itself."""
    ark: str = ""
    """The ARK; for an unreadable object its place in storage."""
    version: int | None = None
    jid: str = ""
    counter: str = ""
    """The name of a counter: `job`, `batch`, or `ark-` with NAAN and shoulder."""
    value: int | None = None
    """The last number that the counter gave, the sum, or the mark of the record; None if it is damaged."""
    known: int | None = None
    """The highest number that a store knows, the bytes of the reservations, or the mark of the inventory."""
    reason: str = ""
    job_failed: bool = False
    """The job stored the version and failed before it entered it: a resume enters it and completes it."""
    repaired: bool = False


@dataclass(frozen=True)
class Comparison:
    """A difference, with its repair; None if an operator has to act."""

    difference: Difference
    repair: Callable[[], None] | None = None


@dataclass
class Numbers:
    """The highest numbers found in storage, collected while its versions are read."""

    shoulders: tuple[tuple[str, str], ...]
    """(NAAN, shoulder) of the collections and of the record's counters; the longest shoulder first."""
    job: int = 0
    batch: int = 0
    minted: dict[tuple[str, str], int] = field(default_factory=dict)
    """(NAAN, shoulder) -> number."""

    def note_job(self, jid: str) -> None:
        self.job = max(self.job, number_of(jid))

    def note_batch(self, bid: str) -> None:
        self.batch = max(self.batch, number_of(bid))

    def spells(self, ark: str) -> bool:
        """Whether a counter of the record may have minted the ARK."""
        return any(noid.number_of(naan, shoulder, ark) is not None for naan, shoulder in self.shoulders)

    def note_minted(self, ark: str) -> None:
        for naan, shoulder in self.shoulders:
            number = noid.number_of(naan, shoulder, ark)
            if number is not None:
                self.minted[naan, shoulder] = max(self.minted.get((naan, shoulder), 0), number)
                return


@dataclass(frozen=True)
class Search:
    """What the parts of a check share."""

    session: Session
    settings: Settings
    storage: Storage
    inventory: SqlInventory
    agent: str
    """The agent of the events of repaired objects."""
    tick: Callable[[int], None]
    """Called with the number of versions, entries and completed jobs compared; raises Stopped on request."""
    numbers: Numbers
    content: bool = False
    """Whether to read every byte of the versions."""
