"""A readable record out of a damaged one, as values: what is lost has the value that loses no content.

A job that lost part of its configuration or of its identifiers may not be resumed, because a digest or an ARK
may be what was lost: it fails as a fault of the content, and its content has to be submitted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.records import (
    BatchHistoryEntry,
    BatchStatus,
    HistoryEntry,
    Identifiers,
    JobConfiguration,
    JobStatus,
    Submission,
    SubmissionType,
    now,
)
from pipeline.states import BATCH, JOB, BatchState, Event, FailureKind, JobState
from zkstate import salvage
from zkstate.record import token

LOST = "(not readable)"
"""Stands for a text of the record that was lost and that a record cannot do without."""

INCOMPLETE = (
    "the record of this batch was damaged: it has {} jobs, and objects without a job may be missing; compare "
    "the report with what was submitted"
)


@dataclass(frozen=True)
class JobSurroundings:
    """What other nodes say about a job, and the version of its status node."""

    bid: str
    profile_name: str
    working_dir: str
    version: int
    queued: tuple[JobState, int] | None
    """The queue that lists it, and with which priority; None for a completed job."""
    history: tuple[HistoryEntry, ...]


def configuration(data: bytes, around: JobSurroundings) -> JobConfiguration:
    """The directory is derived and never taken from damaged bytes, because it is removed with the job."""
    lost = {"payload_url": LOST, "payload_type": "file", "profile_name": around.profile_name}
    fixed = {"batch_id": around.bid, "working_dir": around.working_dir}
    read = salvage.fields(JobConfiguration, data, {**lost, **fixed})
    return read.model_copy(update=fixed)


def identifiers(data: bytes) -> Identifiers:
    return salvage.fields(Identifiers, data, {})


def job_status(data: bytes, around: JobSurroundings, *, resumable: bool) -> JobStatus:
    """The state is that of the queue and the history, which every move changes together with the status."""
    state = _state(around)
    read = salvage.fields(JobStatus, data, {"status": state})
    last = _last_success(around.history, state)
    return read.model_copy(
        update={
            "status": state,
            "last_successful_status": last,
            **_failure(around.history, state),
            **({} if resumable else unresumable(state)),
            "priority": around.queued[1] if around.queued else read.priority,
            "epoch": _next_epoch(read.epoch, around.version),
            **_NEW_ATTEMPT,
            "op": token(),
        }
    )


def _failure(history: tuple[HistoryEntry, ...], state: JobState) -> dict[str, object]:
    """Why a failed job failed, as its history says."""
    if state is not JobState.FAILED:
        return {"kind": None}
    ends = [entry for entry in history if entry.event is Event.FAIL and entry.kind is not None]
    last = ends[-1] if ends and history[-1].state is JobState.FAILED else None
    return {"kind": last.kind, "message": last.message} if last else {"kind": FailureKind.SYSTEM}


def unresumable(state: JobState) -> dict[str, object]:
    """The changes of a status after which the job cannot be resumed, once it has failed."""
    return {"last_successful_status": None, "kind": FailureKind.CONTENT if state is JobState.FAILED else None}


_NEW_ATTEMPT = {"delay": 0, "waits_for": None, "handed_back": False, "probe": "", "service_faults": 0}


def _next_epoch(salvaged: int, version: int) -> int:
    """Above every epoch of the record: no write of a status adds more than one to it."""
    return max(salvaged if salvaged <= version + 1 else 1, version + 1) + 1


def _state(around: JobSurroundings) -> JobState:
    if around.queued is not None:
        return around.queued[0]
    return around.history[-1].state if around.history else JobState.COMPLETED


def _last_success(history: tuple[HistoryEntry, ...], state: JobState) -> JobState | None:
    """By the history; without one by the state, which a job reaches after the one before has succeeded."""
    last: JobState | None = None
    at = JOB.initial
    for entry in history:
        if entry.event is Event.SUCCEED:
            last = at
        elif entry.event in (Event.RESUME, Event.DOWNLOAD_AGAIN):
            last = JOB.before(JobState.FAILED, Event.RESUME, entry.state)
        at = entry.state
    if history:
        return last
    order = JOB.working()
    number = order.index(state) if state in order else 0
    return order[number - 1] if number > 1 else None


@dataclass(frozen=True)
class BatchSurroundings:
    """What other nodes say about a batch, and the version of its status node."""

    deposit: Mapping[str, object]
    """The fields that its jobs and its profile repeat."""
    version: int
    split: bool
    """It has the folders of its jobs."""
    open: bool
    unended: bool
    """Jobs of the batch have not ended."""
    jobs: int
    reported: bool
    history: tuple[BatchHistoryEntry, ...]


def submission(data: bytes, around: BatchSurroundings) -> Submission:
    lost = {"payload_url": LOST, "type": SubmissionType.FILE, "profile_name": LOST}
    return salvage.fields(Submission, data, {**lost, **around.deposit})


def batch_status(data: bytes, around: BatchSurroundings) -> BatchStatus:
    """A split that had not ended cannot continue without its plan: the batch gets no further jobs."""
    state = _batch_state(around)
    read = salvage.fields(BatchStatus, data, {"status": state})
    uncertain = around.split and read.total != around.jobs
    doubt = {"kind": FailureKind.SYSTEM, "message": INCOMPLETE.format(around.jobs)} if uncertain else {}
    return read.model_copy(
        update={
            "status": state,
            "created": around.jobs,
            "total": around.jobs if around.split else None,
            **doubt,
            "reports": max(read.reports, around.reported),
            "last_modified": now(),
            "epoch": _next_epoch(read.epoch, around.version),
            **_NEW_ATTEMPT,
            "op": token(),
        }
    )


def _batch_state(around: BatchSurroundings) -> BatchState:
    if around.history:
        return around.history[-1].state
    if around.split:
        return BatchState.PROCESSING if around.open or around.unended else BatchState.FAILED
    return BATCH.initial if around.open else BatchState.HELD
