"""The result of a dry run: what a submission would do, and what would refuse it."""

from enum import StrEnum

from pydantic import Field

from pipeline.records import Record, SubmissionType
from zkstate.fleet.holds import Hold

LIST_LIMIT = 50
"""Failures, doubts, repeated values and known local ids that are listed; all of them are counted."""


class Trouble(Record):
    """Why one object would fail, or may fail."""

    number: int
    """The object's place in the batch, from 1; 0: the batch as a whole."""
    name: str
    message: str


class Contradiction(Record):
    """An object whose identifiers name different objects."""

    number: int
    name: str
    arks: tuple[str, ...]


class Fit(StrEnum):
    """How far the submission fits into working storage."""

    ALL_NOW = "all-now"
    IN_TURN = "in-turn"
    """Every object fits now, but not all at once."""
    SOME_WAIT = "some-wait"
    UNKNOWN = "unknown"
    """Working storage is not on the machine that answers, or no job has used it yet."""


class SpaceNeed(Record):
    """Bytes of working storage."""

    total: int
    largest: int
    """For the largest object."""
    fit: Fit
    waiting: int = 0
    """Objects that do not fit now."""


class Estimate(Record):
    """Seconds of downloading alone, by a sample from every host; None: no host gave one."""

    least: float | None = None
    """If the connections of a job add up."""
    most: float | None = None
    """If they are not faster than one."""
    sampled: int = 0
    """Bytes that were downloaded from the `measured` hosts."""
    measured: int = 0
    unmeasured: tuple[str, ...] = ()
    """Hosts that gave no sample and are not included."""
    connections: int
    """Files that a job downloads at a time."""


class HostResult(Record):
    host: str
    files: int
    bytes: int
    latency: float | None = None
    bytes_per_second: int | None = None


class DryRunResult(Record):
    """What a submission would do. `failing` and `doubtful` are numbers of objects; the lists are limited."""

    profile: str
    payload_url: str
    payload_type: SubmissionType
    submission_mode: str
    new_version: bool = True
    """Whether known objects may get a new version. Absent in the answer of a server before 0.2.1: yes."""
    submitted_before: str | None = None
    jobs: int = 0
    unread: int = 0
    files: int = 0
    bytes: int = 0
    unsized: int = 0
    asked: int = 0
    without_digest: int = 0
    priority: int | None = None
    ahead: int = 0
    space: SpaceNeed | None = None
    hosts: tuple[HostResult, ...] = ()
    known: dict[str, str] = Field(default_factory=dict)
    known_count: int = 0
    failing: int = 0
    failures: tuple[Trouble, ...] = ()
    doubtful: int = 0
    doubts: tuple[Trouble, ...] = ()
    paused: Hold | None = None
    """The pause of the queue; its jobs would wait for the end of the pause."""
    hold: Hold | None = None
    """The hold on the collection; its jobs would be held."""
    repeated: tuple[str, ...] = ()
    """Values that several objects share; a limited list."""
    repeated_count: int = 0
    contradictions: tuple[Contradiction, ...] = ()
    estimate: Estimate | None = None

    @property
    def good(self) -> bool:
        return not self.failing
