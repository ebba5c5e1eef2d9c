"""A dry run's request and result for clients: the plan of local files, and what a submission would do.

The result also says what would cause the submission to be refused.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline.records import Record, Submission, SubmissionType, Text
from zkstate.fleet.holds import Hold

if TYPE_CHECKING:
    from operations.deposits.local_deposit import LocalDeposit

LIST_LIMIT = 50
"""Maximum number of failures, doubts, repeated values and known local ids listed; all are counted."""

NAMED = 2000
"""Maximum number of objects with identifiers that one request may name."""

LARGEST = 20
"""Number of files, the largest ones, whose sizes are checked."""


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


class NamedObject(Record):
    """An object of the deposit that has identifiers; `number`: its place in the batch, from 1."""

    number: int = Field(ge=1)
    name: Text = ""
    primary_id: Text | None = None
    local_id: tuple[Text, ...] = ()


class PlannedFile(Record):
    name: Text
    size: int = Field(ge=0)


class LocalPlan(Record):
    """A deposit of files that are not uploaded yet; a plan with many named objects comes in parts."""

    objects: int = Field(ge=0)
    files: int = Field(ge=0)
    bytes: int = Field(ge=0)
    largest: tuple[PlannedFile, ...] = Field((), max_length=LARGEST)
    named: tuple[NamedObject, ...] = Field((), max_length=NAMED)


def plans(submission: Submission, deposit: "LocalDeposit | None") -> list[LocalPlan]:
    """The parts of the plan; without a deposit, the plan of the one object that the submission names."""
    given = deposit.named(submission) if deposit else (submission,)
    named = [
        NamedObject(
            number=number,
            name=deposit.name_of(one) if deposit else "",
            primary_id=one.primary_id,
            local_id=one.local_id,
        )
        for number, one in enumerate(given, 1)
        if one.local_id or one.primary_id
    ]
    files = deposit.files if deposit else ()
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:LARGEST]
    whole = LocalPlan(
        objects=deposit.objects if deposit else 1,
        files=len(files),
        bytes=sum(file.size for file in files),
        largest=tuple(PlannedFile(name=file.name, size=file.size) for file in largest),
    )
    parts = [tuple(named[start : start + NAMED]) for start in range(0, len(named), NAMED)]
    return [whole.model_copy(update={"named": part}) for part in parts or [()]]


def together(parts: Sequence[DryRunResult]) -> DryRunResult:
    """The combined result of a plan that was checked in parts; its files were checked with each part."""
    first, *others = parts
    refused = [trouble for part in others for trouble in part.failures if trouble.number]
    known = {name: ark for part in parts for name, ark in part.known.items()}
    return first.model_copy(
        update={
            "known": dict(list(known.items())[:LIST_LIMIT]),
            "known_count": sum(part.known_count for part in parts),
            "failing": first.failing + len(refused),
            "failures": (*first.failures, *refused)[:LIST_LIMIT],
        }
    )
