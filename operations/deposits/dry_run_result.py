"""A dry run's request and result for clients: the plan of local files, and what a submission would do.

The result also says what would cause the submission to be refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from operations.deposits.planned import (
    NAMED,
    Contradiction,
    JudgedObject,
    Judgement,
    NamedObject,
    as_named,
)
from pipeline.records import Record, Submission, SubmissionType, Text
from zkstate.fleet.holds import Hold

if TYPE_CHECKING:
    from operations.deposits.local_deposit import LocalDeposit

LIST_LIMIT = 50
"""Maximum number of failures, doubts, repeated values and known local ids listed; all are counted."""

PART_BYTES = 1 << 19
"""Bytes after which no further object is named in a request; a body has at most twice as many."""

LARGEST = 20
"""Number of files, the largest ones, whose sizes are checked."""


class Trouble(Record):
    """Why one object would fail, or may fail."""

    number: int
    """The object's place in the batch, from 1; 0: the batch as a whole."""
    name: str
    message: str


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
    """Warnings: values that several objects share, objects of other depositors; a limited list."""
    repeated_count: int = 0
    contradictions: tuple[Contradiction, ...] = ()
    estimate: Estimate | None = None
    objects: tuple[JudgedObject, ...] = ()
    """What each object would become; a limited list. Absent in the answer of a server up to 0.3.0."""

    @property
    def good(self) -> bool:
        return not self.failing


def judged_facts(judgement: Judgement, total: int) -> dict[str, object]:
    """The fields of a result that the judge fills; `total`: the number of all objects."""
    failures = [Trouble(number=0, name="", message=fault.message) for fault in judgement.errors]
    failures += (
        Trouble(number=one.number, name=one.name, message=fault.message)
        for one in judgement.objects
        for fault in one.errors
    )
    failing = total if judgement.errors else sum(bool(one.errors) for one in judgement.objects)
    return {
        "objects": judgement.objects[:NAMED],
        "failing": failing,
        "failures": tuple(failures[:LIST_LIMIT]),
        "known": dict(list(judgement.known.items())[:LIST_LIMIT]),
        "known_count": len(judgement.known),
        "repeated": tuple(fault.message for fault in judgement.warnings[:LIST_LIMIT]),
        "repeated_count": len(judgement.warnings),
        "contradictions": judgement.contradictions,
    }


class PlannedFile(Record):
    name: Text
    size: int = Field(ge=0)


class LocalPlan(Record):
    """The objects of a deposit of files that are not uploaded yet; a plan of many objects comes in parts."""

    objects: int = Field(ge=0)
    files: int = Field(ge=0)
    bytes: int = Field(ge=0)
    largest: tuple[PlannedFile, ...] = Field((), max_length=LARGEST)
    """For servers up to 0.3.0, and from clients up to 0.3.0, which name no files of objects."""
    named: tuple[NamedObject, ...] = Field((), max_length=NAMED)
    """Clients up to 0.3.0 name only objects that have identifiers."""


def plans(submission: Submission, deposit: "LocalDeposit | None", *, read: bool = False) -> list[LocalPlan]:
    """The parts of the plan; without a deposit, the plan of the one object that the submission names.

    `read`: compare the bytes of local files with the digests that are declared for them.
    """
    named = deposit.named(submission, read=read) if deposit else (as_named(submission),)
    files = deposit.files if deposit else ()
    largest = sorted(files, key=lambda file: file.size, reverse=True)[:LARGEST]
    whole = LocalPlan(
        objects=deposit.objects if deposit else 1,
        files=len(files),
        bytes=sum(file.size for file in files),
        largest=tuple(PlannedFile(name=file.name, size=file.size) for file in largest),
    )
    return [whole.model_copy(update={"named": part}) for part in _parts(named)]


def _parts(named: Iterable[NamedObject]) -> Iterator[tuple[NamedObject, ...]]:
    """As many objects each as one request may name."""
    part: list[NamedObject] = []
    size = 0
    for one in named:
        own = len(one.model_dump_json())
        if part and (len(part) == NAMED or size + own > PART_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += own
    yield tuple(part)


def together(parts: Sequence[DryRunResult]) -> DryRunResult:
    """The combined result of a plan that was judged in parts; what refuses the whole is in every part."""
    first, *others = parts
    failures = [trouble for part in others for trouble in part.failures if trouble.number]
    known = {name: ark for part in parts for name, ark in part.known.items()}
    return first.model_copy(
        update={
            "known": dict(list(known.items())[:LIST_LIMIT]),
            "known_count": sum(part.known_count for part in parts),
            "failing": min(first.jobs, sum(part.failing for part in parts)),
            "failures": (*first.failures, *failures)[:LIST_LIMIT],
            "objects": tuple(one for part in parts for one in part.objects),
            "unsized": sum(part.unsized for part in parts),
            "repeated": tuple(text for part in parts for text in part.repeated)[:LIST_LIMIT],
            "repeated_count": sum(part.repeated_count for part in parts),
            "contradictions": tuple(one for part in parts for one in part.contradictions),
        }
    )
