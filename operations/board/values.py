"""The values of the board: scopes, searches, and answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from pipeline.causes import FailureCause, Owner
from pipeline.outcome import WaitKind
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Record, SentRecord
from pipeline.states import BatchState, FailureKind, JobState, Room
from zkstate.queue.listings import Unreadable


class Scope(Record):
    """What a caller may see; None is everything."""

    collections: frozenset[str] | None = None
    owner: str | None = None
    """Only batches that this identity submitted."""

    def admits(self, collection: str, owner: str) -> bool:
        if self.collections is not None and collection not in self.collections:
            return False
        return self.owner is None or owner == self.owner


EVERYTHING = Scope()


def scope_of(principal: Principal) -> Scope:
    """The principal's scope: a depositor sees its own submissions; others see their collections."""
    owner = principal.identity if principal.role is Role.DEPOSITOR else None
    return Scope(collections=principal.collections, owner=owner)


class JobSearch(SentRecord):
    """Which jobs: every condition that is given has to hold."""

    state: JobState | None = None
    bid: str | None = None
    collection: str | None = None
    kind: FailureKind | None = None
    cause: str | None = None
    """The id of a FailureGroup."""
    waiting: WaitKind | None = None
    """What the job waits for in a working state."""
    owner: str | None = None
    """The identity of who submitted it."""
    older_than: float | None = Field(default=None, ge=0)
    """Seconds since the job came to its state."""
    younger_than: float | None = Field(default=None, ge=0)
    """The same, at most."""
    slow: bool = False
    """Only jobs that are in their state for longer than is usual there."""
    q: str | None = None
    """A JID, a BID, the beginning of an ARK, or text of the name."""


class BatchSearch(Record):
    """Which batches: every condition that is given has to hold."""

    status: BatchState | None = None
    collection: str | None = None
    owner: str | None = None
    q: str | None = None
    """A BID, or text of the name or of the submitter."""


class BoardJob(Record):
    """One line of a list of jobs."""

    jid: str
    bid: str
    collection: str
    owner: str
    name: str = ""
    """Empty for jobs that were not read: pending and completed ones."""
    ark: str = ""
    state: JobState
    priority: int
    since: datetime
    """Of a pending job that nobody has read: since when its batch is in its state."""
    kind: FailureKind | None = None
    cause: str = ""
    """The id of its FailureGroup, if it failed."""
    message: str = ""
    held: bool = False
    """A hold keeps it back: its own, or that of its collection."""
    waiting: str = ""
    """What it waits for in a working state: a WaitKind, or empty."""
    usual: float | None = None
    """Given if the job is slow: 95 % of the jobs that left its state lately were there for fewer seconds."""
    retry_count: int | None = None
    """This and what follows stands in the record alone; null where that was not read."""
    failure_cause: FailureCause | None = None
    last_successful_status: JobState | None = None
    deposit_name: str | None = None
    local_id: tuple[str, ...] | None = None
    room: Room | None = None


class Freshness(Record):
    """How current the board is. While `stale`, it shows the record as of `as_of`."""

    as_of: datetime
    stale: bool
    stale_since: datetime | None = None
    corrections: int = 0
    """Differences to the record that a comparison corrected: 0 as long as the feed loses nothing."""
    resyncs: int = 0
    """How often the feed was armed again and the whole board was compared with the record: after a lost
    connection, a write that was not pushed, or a correction."""
    following: bool = False
    """True if changes are pushed; False if the server cannot, and the record is listed every few seconds."""


class JobPage(Record):
    rows: tuple[BoardJob, ...]
    next: str | None = None
    """The cursor of the next page; None on the last page."""
    total: int
    """Jobs on all pages."""
    unreadable: tuple[Unreadable, ...] = ()
    """Jobs of this page whose record is damaged."""
    freshness: Freshness | None = None
    """Null in the answer of a server up to 0.3.0."""


class BoardBatch(Record):
    """One line of a list of batches."""

    bid: str
    collection: str
    owner: str
    name: str
    submitter: str = ""
    status: BatchState
    since: datetime
    submitted_at: datetime
    total: int | None = None
    """Jobs in all; None until the payload has been split."""
    jobs: dict[JobState, int] = Field(default_factory=dict)
    seconds_left: float | None = None
    """Until its last job has ended, at its pace of the last hour; null while that is not known."""
    kind: FailureKind | None = None
    cause: str = ""
    message: str = ""
    held: bool = False


class BatchPage(Record):
    rows: tuple[BoardBatch, ...]
    next: str | None = None
    total: int
    freshness: Freshness | None = None
    """Null in the answer of a server up to 0.3.0."""


class FailureGroup(Record):
    """The failures of one cause."""

    id: str
    kind: FailureKind
    owner: Literal["depositor", "operator", "wait"]
    """`to_act`, where a source counts as wait."""
    to_act: Owner = "wait"
    """Who has to act: the depositor, the operator, the source's operators, or nobody before a retry."""
    code: str = ""
    """Of the table of causes; the code of another release is possible."""
    title: str = ""
    """`4 objects: the digest of a file differs from the declared one`; true for each of them."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """What identifies the cause, as in the title."""
    remedy: str = ""
    resume: bool | None = None
    """Whether a resume can help once the remedy was applied; null if that is not known."""
    template: str
    """The title without the number."""
    host: str = ""
    """The source, with its port unless that is 443."""
    count: int
    """Failed jobs."""
    batches: int = 0
    """Batches that failed as a whole, before or after they had jobs."""
    first: datetime
    last: datetime
    collections: tuple[str, ...]
    example: str
    """A JID; the BID if only batches failed."""
    message: str = ""
    """The example's message."""


class CollectionCounts(Record):
    collection: str
    jobs: dict[JobState, int]
    batches: dict[BatchState, int]
    held: bool = False


class Stop(Record):
    """A hold of a collection or, with `collection` None, the pause of the queue."""

    collection: str | None = None
    by: str = ""
    reason: str = ""
    at: datetime
    via: Interface | None = None
    jobs: int = 0
    """Jobs that have not started and that it keeps back."""
    sized: int = 0
    """The held ones of these whose size was declared: a size is estimated after a job has started."""
    bytes: int = 0
    """The declared sizes of the `sized` jobs."""
    batches: int = 0
    """Batches that are held, or not split yet, because of it."""


class Stops(Record):
    pause: Stop | None = None
    collections: tuple[Stop, ...] = ()


class Hour(Record):
    """What was stored and what failed within an hour; null for what is not known."""

    begins: datetime
    stored: int | None = None
    """Versions of objects."""
    bytes: int | None = None
    """Of the files that were new in these versions."""
    failed: int | None = None
    """Jobs that failed, and that nobody has resumed or deleted since."""


def in_all(hours: Sequence[Hour], figure: Literal["stored", "bytes", "failed"]) -> int | None:
    """The sum of the hours; None unless it is known of each."""
    numbers = [getattr(hour, figure) for hour in hours]
    return None if None in numbers or not hours else sum(numbers)


class Change(Record):
    """A change on the board, with absolute values: a client may apply it twice."""

    id: str
    kind: Literal["job", "batch", "stops", "freshness"]
    subject: str = ""
    """JID or BID."""
    bid: str = ""
    collection: str = ""
    owner: str = ""
    state: str = ""
    """The new state; empty if the job or the batch left the record."""
    previous: str = ""


class Changes(Record):
    """The changes after an event id. After a `reset` the client reads its lists again."""

    last: str
    """The id to continue after."""
    changes: tuple[Change, ...] = ()
    reset: bool = False


CAUSES_SHOWN = 10
"""Causes of failures that a terminal shows."""

LATEST = 10
"""Batches that a terminal shows."""


class BoardView(Record):
    """Absolute values as of `freshness.as_of`."""

    freshness: Freshness
    jobs: dict[JobState, int]
    oldest: dict[JobState, datetime]
    """Since when the job is there that has been in the state for longest."""
    stops: Stops
    hours: tuple[Hour, ...] = ()
    """The last 24 hours, oldest first, without those before the deployment began. Absent up to 0.3.0."""
    stored_as_of: datetime | None = None
    """When the inventory was asked what was stored; about once a minute."""


class BoardSummary(BoardView):
    """The board as one value, for a terminal."""

    failures: tuple[FailureGroup, ...]
    """The most frequent causes."""
    causes: int
    """Causes in all."""
    collections: tuple[CollectionCounts, ...]


class LiveView(Record):
    """The board as a terminal shows it while it changes."""

    summary: BoardSummary
    batches: BatchPage
    """The latest."""
    problem: str = ""
    """Why the view is stale: the site does not answer."""

    def stale(self, problem: str) -> "LiveView":
        """This view, which cannot be read again now."""
        freshness = self.summary.freshness.model_copy(update={"stale": True})
        summary = self.summary.model_copy(update={"freshness": freshness})
        return self.model_copy(update={"summary": summary, "problem": problem})
