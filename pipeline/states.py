"""The transitions, written once: the job's table and the batch's table.

Rule: nothing about states and their order is written anywhere else. Task names, queues, command line verbs,
refusals, the diagram in docs/states.md and the tests are derived from the two tables below; no code sets a
state that a row of them did not give. docs/adding-a-step.md says how to add a state.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pipeline.errors import Documented
from pipeline.machine import (
    ANY,
    Bucket,
    Event,
    FailureKind,
    IllegalTransition,
    Machine,
    Queue,
    Raiser,
    Room,
    S,
    StateFacts,
    Task,
    Transition,
)

__all__ = [
    "ANY",
    "BATCH",
    "FAILING",
    "JOB",
    "OCCUPYING",
    "QUEUED",
    "STEP_DONE",
    "BatchState",
    "Bucket",
    "Event",
    "FailureKind",
    "IllegalTransition",
    "JobState",
    "Machine",
    "Queue",
    "Raiser",
    "Room",
    "S",
    "StateFacts",
    "Task",
    "Transition",
    "bucket",
]


class JobState(Documented):
    PENDING = "pending", "Waiting for a worker; its payload has not been read yet."
    HELD = "held", "Its collection is on hold; an operator releases it."
    ESTIMATING = "estimating", "The size of the content is read from its sources."
    PROVISIONING = "provisioning", "Waiting until working storage has room for it."
    DOWNLOADING = "downloading", "Its content is downloaded and its digests are checked."
    REVIEW = "review", "Downloaded; an operator approves or rejects it before it is stored."
    PROCESSING = "processing", "Identified, described and handed to storage."
    RECORDING = "recording", "Stored; it is being entered in the inventory."
    NOTIFY = "notify", "Recorded; the depositor's system is being notified."
    COMPLETED = "completed", "Stored and recorded; the depositor's system was notified."
    FAILED = "failed", "Stopped by an error; the message says who has to act."
    DELETED = "deleted", "Removed by an operator; a tombstone remains."


class BatchState(Documented):
    PENDING = "pending", "Submitted; its payload has not been split into jobs yet."
    HELD = "held", "Its collection is on hold; an operator releases it."
    PROCESSING = "processing", "It is being split, or its jobs are running."
    REPORTING = "reporting", "Every job has ended; the report is being written and sent."
    COMPLETED = "completed", "Every job completed, and the report was sent."
    FAILED = "failed", "At least one job failed, and the report was sent."
    UPDATE_REPORTING = (
        "update-reporting",
        "A second report is being sent: what has changed since the last one.",
    )
    DELETED = "deleted", "Removed; a tombstone remains."


_W, _O, _A = (frozenset({r}) for r in (Raiser.WORKER, Raiser.OPERATOR, Raiser.AUTOMATIC))
_J, _B, _E = JobState, BatchState, Event


def _work(state: JobState, queue: Queue) -> Task:
    return Task(f"job.{state}", queue)


_FACTS: dict[JobState, StateFacts] = {
    _J.PENDING: StateFacts(_work(_J.PENDING, Queue.IO), fetches=True),
    _J.HELD: StateFacts(),
    _J.ESTIMATING: StateFacts(_work(_J.ESTIMATING, Queue.IO), occupies_place=True, fetches=True),
    _J.PROVISIONING: StateFacts(_work(_J.PROVISIONING, Queue.IO)),
    _J.DOWNLOADING: StateFacts(
        _work(_J.DOWNLOADING, Queue.DOWNLOAD), occupies_place=True, fetches=True, holds_space=True
    ),
    _J.REVIEW: StateFacts(holds_space=True),  # the content is kept for whoever decides
    _J.PROCESSING: StateFacts(
        _work(_J.PROCESSING, Queue.PROCESS), occupies_place=True, holds_space=True, reads_content=True
    ),
    _J.RECORDING: StateFacts(
        _work(_J.RECORDING, Queue.IO), occupies_place=True, holds_space=True, stored=True
    ),
    _J.NOTIFY: StateFacts(
        _work(_J.NOTIFY, Queue.IO), occupies_place=True, holds_space=True, stored=True, recorded=True
    ),
    _J.COMPLETED: StateFacts(stored=True, recorded=True, ended=True, bucket=Bucket.COMPLETED),
    _J.FAILED: StateFacts(ended=True, failed=True, bucket=Bucket.FAILED),
    _J.DELETED: StateFacts(ended=True, failed=True, bucket=Bucket.DELETED, queued=False),
}

_ROWS: tuple[Transition[JobState], ...] = (
    Transition(_J.PENDING, _E.ACQUIRE, _J.ESTIMATING, _W),
    Transition(_J.PENDING, _E.HOLD, _J.HELD, _W | _O),
    Transition(_J.PENDING, _E.FAIL, _J.FAILED, _W | _O),
    Transition(_J.HELD, _E.RELEASE, _J.PENDING, _O),
    Transition(_J.HELD, _E.DELETE, _J.DELETED, _O),
    Transition(_J.ESTIMATING, _E.SUCCEED, _J.PROVISIONING, _W),
    Transition(_J.ESTIMATING, _E.FAIL, _J.FAILED, _O),
    Transition(_J.PROVISIONING, _E.SUCCEED, _J.DOWNLOADING, _W),
    Transition(_J.PROVISIONING, _E.FAIL, _J.FAILED, _O, until=1),
    Transition(_J.PROVISIONING, _E.FAIL, _J.FAILED, _W | _O, since=2),
    Transition(_J.DOWNLOADING, _E.SUCCEED, _J.PROCESSING, _W),
    Transition(_J.DOWNLOADING, _E.FAIL, _J.FAILED, _W | _O),
    Transition(_J.DOWNLOADING, _E.DOWNLOAD_AGAIN, _J.PROVISIONING, _W, since=2),
    Transition(_J.DOWNLOADING, _E.REVIEW, _J.REVIEW, _W, since=3),
    Transition(_J.REVIEW, _E.APPROVE, _J.PROCESSING, _O, since=3),
    Transition(_J.REVIEW, _E.REJECT, _J.FAILED, _O, since=3),
    Transition(_J.REVIEW, _E.FAIL, _J.FAILED, _O, since=3),
    Transition(_J.PROCESSING, _E.SUCCEED, _J.RECORDING, _W),
    Transition(_J.PROCESSING, _E.FAIL, _J.FAILED, _W | _O),
    Transition(_J.PROCESSING, _E.DOWNLOAD_AGAIN, _J.PROVISIONING, _W, since=2),
    Transition(_J.RECORDING, _E.SUCCEED, _J.NOTIFY, _W),
    Transition(_J.RECORDING, _E.FAIL, _J.FAILED, _W | _O),
    Transition(_J.NOTIFY, _E.SUCCEED, _J.COMPLETED, _W),
    Transition(_J.NOTIFY, _E.FAIL, _J.FAILED, _W | _O, until=3),
    Transition(_J.NOTIFY, _E.FAIL, _J.FAILED, _W, since=4),
    Transition(_J.NOTIFY, _E.FAIL, _J.COMPLETED, _O, since=4),  # what is stored and recorded has not failed
    Transition(_J.COMPLETED, _E.CLEAN_UP, _J.COMPLETED, _A),
    Transition(_J.FAILED, _E.RESUME, _J.PENDING, _O, None, refused_after=FailureKind.CONTENT),
)
"""Without the deletion of a failed job and the rows that follow from these: where a failed job resumes."""


def _room(step: JobState) -> frozenset[Room]:
    """What a failed job must have of working storage to begin this step; empty: nothing."""
    facts = _FACTS[step]
    if facts.fetches and facts.holds_space:
        return frozenset({Room.KEPT})
    return frozenset({Room.KEPT, Room.YIELDED}) if facts.reads_content else frozenset()


def _resumes() -> Iterator[Transition[JobState]]:
    """A failed job continues with the step that its last success led to.

    A job whose reservation is gone takes a new one first; what is on the disk is not downloaded again.
    """
    for done in _ROWS:
        step, room = done.target, _room(done.target)
        if done.event is not _E.SUCCEED or _FACTS[step].ended:
            continue
        row = partial(Transition[JobState], _J.FAILED, _E.RESUME, by=_O, after=done.source, until=done.until)
        if not room:
            yield row(target=step, since=done.since)
            continue
        if done.since == 1:
            yield replace(row(target=step), until=1)
        since = max(done.since, 2)
        yield row(target=step, room=room, since=since)
        yield row(target=_J.PROVISIONING, room=frozenset(Room) - room, since=since)


def _repeats() -> Iterator[Transition[JobState]]:
    """After a step has succeeded, an operator may name it or a step before it, to do the work again."""
    onward = {row.source: row for row in _ROWS if row.event in (_E.ACQUIRE, _E.SUCCEED) and row.until is None}
    since = {step: min(row.since for row in _ROWS if row.source is step) for step in onward}
    order = [_J.PENDING]
    while not _FACTS[following := onward[order[-1]].target].ended:
        order.append(following)
    for number, after in enumerate(order[1:-1], 1):
        for step in order[: number + 1]:
            first = max(2, since[step], since[after])
            yield Transition(_J.FAILED, _E.RESUME, step, _O, after, room=_room(step), named=True, since=first)


JOB: Machine[JobState] = Machine(
    "job",
    _J.PENDING,
    _FACTS,
    # what an operator is offered has this order: the deletion last
    (*_ROWS, *_resumes(), *_repeats(), Transition(_J.FAILED, _E.DELETE, _J.DELETED, _O)),
)

_SPLIT = Task("batch.split", Queue.SPLIT)
_REPORT = Task("batch.report", Queue.CONTROL)
_UPDATE_REPORT = Task("batch.update-report", Queue.CONTROL)

BATCH: Machine[BatchState] = Machine(
    "batch",
    _B.PENDING,
    {
        _B.PENDING: StateFacts(_SPLIT, fetches=True, open=True, split=False),
        _B.HELD: StateFacts(split=False),
        _B.PROCESSING: StateFacts(_SPLIT, fetches=True, open=True),
        _B.REPORTING: StateFacts(_REPORT, open=True, reports=True),
        _B.COMPLETED: StateFacts(ended=True),
        _B.FAILED: StateFacts(ended=True, failed=True),
        _B.UPDATE_REPORTING: StateFacts(_UPDATE_REPORT, open=True, reports=True),
        _B.DELETED: StateFacts(ended=True, failed=True, open=True),  # until the last of its znodes is gone
    },
    (
        Transition(_B.PENDING, _E.ACQUIRE, _B.PROCESSING, _W),
        Transition(_B.PENDING, _E.HOLD, _B.HELD, _W),
        Transition(_B.PENDING, _E.FAIL, _B.REPORTING, _W | _O, since=2),
        Transition(_B.HELD, _E.RELEASE, _B.PENDING, _O),
        Transition(_B.HELD, _E.FAIL, _B.REPORTING, _O, since=2),
        Transition(_B.HELD, _E.DELETE, _B.DELETED, _O),
        Transition(_B.PROCESSING, _E.SUCCEED, _B.REPORTING, _W),
        Transition(_B.PROCESSING, _E.FAIL, _B.PROCESSING, _W | _O, since=2),  # the jobs that exist continue
        Transition(_B.REPORTING, _E.SUCCEED, _B.COMPLETED, _W),
        Transition(_B.REPORTING, _E.FAIL, _B.FAILED, _W, until=1),
        Transition(_B.REPORTING, _E.FAIL, _B.FAILED, _W | _O, since=2),
        Transition(_B.FAILED, _E.UPDATE_REPORT, _B.UPDATE_REPORTING, _O),
        Transition(_B.UPDATE_REPORTING, _E.SUCCEED, _B.COMPLETED, _W),
        Transition(_B.UPDATE_REPORTING, _E.FAIL, _B.FAILED, _W, until=1),
        Transition(_B.UPDATE_REPORTING, _E.FAIL, _B.FAILED, _W | _O, since=2),
        Transition(_B.FAILED, _E.DELETE, _B.DELETED, _O),
        Transition(_B.COMPLETED, _E.DELETE, _B.DELETED, _A),
    ),
)


def phrase(state: str) -> str:
    """The state in a sentence such as "it has been held": some names are no adjectives."""
    return _PHRASES.get(state, state)


_PHRASES: dict[str, str] = {JobState.REVIEW: "in review", JobState.NOTIFY: "notifying"}


def bucket(state: JobState) -> Bucket:
    """Where a batch keeps a job in `state`; a held job has not ended."""
    return JOB.facts[state].bucket


QUEUED = tuple(JOB.where(lambda facts: facts.queued))
"""The job states that have a queue."""

FAILING = frozenset(row.event for row in JOB.every_row if row.target is JobState.FAILED)
"""The events with which a job fails; one of a recorded job, raised by an operator, completes it."""

STEP_DONE = frozenset({Event.SUCCEED, Event.REVIEW})
"""The events with which a step has done its work; which one it is, the step says."""

OCCUPYING = tuple(JOB.where(lambda facts: facts.occupies_place))
"""The job states in which a job takes one of the places of ARKLINE_IN_FLIGHT, unless it waits."""
