"""What is read from the record as values of the board's rows, and rows as changes.

Rows of the tables as values of the board.
"""

import sqlite3
from datetime import UTC, datetime
from typing import NamedTuple

from operations.board.place import Place
from operations.board.values import BoardBatch, BoardJob, Change, cause_of
from pipeline.records import Submission
from pipeline.states import BatchState, Bucket, FailureKind, JobState
from zkstate.feed.tree import BatchRead, JobDetail


class JobWrite(NamedTuple):
    """A job's place, and since when the job is in this state."""

    jid: str
    place: Place
    since: float
    previous: JobState | None
    moved: bool
    """The state changed: what was read of the former state is void."""


class OfBatch(NamedTuple):
    """What the rows of jobs have of their batch."""

    collection: str | None
    owner: str | None


UNKNOWN = OfBatch(None, None)

_TEXT: dict[object, str | None] = {value: value.value for kind in (JobState, Bucket) for value in kind}
_TEXT[None] = None
"""SQLite takes a text much faster than a value of an enumeration."""


def of_place(job: JobWrite, batch: OfBatch) -> tuple[object, ...]:
    """In the order of the columns that a place has."""
    place = job.place
    return (
        job.jid,
        place.bid,
        batch.collection,
        batch.owner,
        _TEXT[place.queue],
        _TEXT[place.bucket],
        _TEXT[place.state],
        place.priority,
        _TEXT[job.previous],
        job.since,
    )


def of_detail(detail: JobDetail) -> dict[str, object]:
    return {
        "jid": detail.jid,
        "state": detail.state,
        "name": detail.name,
        "ark": detail.ark,
        "since": detail.since.timestamp(),
        "message": detail.message,
        "waiting": detail.waits_for,
        "bytes": detail.bytes,
        **_failure(detail.kind if detail.state is JobState.FAILED else None, detail.message),
    }


def job_change(row: sqlite3.Row) -> Change:
    return Change(
        id="",
        kind="job",
        subject=row["jid"],
        bid=row["bid"],
        collection=row["collection"] or "",
        owner=row["owner"] or "",
        state=row["state"] or "",
        previous=row["previous"] or "",
    )


def of_batch(batch: BatchRead) -> dict[str, object]:
    submission, status = batch.submission, batch.status
    submitted = submission.submitted_at if submission else None
    deposited = status.deposited if status else None
    since = status.last_modified if status else submitted
    return {
        "bid": batch.bid,
        "collection": submission.profile_name if submission else None,
        "owner": submission.owner if submission else "",
        "name": _batch_name(submission),
        "submitter": submission.submitter if submission else "",
        "status": status.status if status else None,
        "since": seconds(since),
        "submitted": seconds(submitted or since),
        "total": status.total if status else None,
        "message": status.message if status else "",
        "files": deposited.files if deposited else 0,
        "bytes": deposited.bytes if deposited else 0,
        **_failure(status.kind if status else None, status.message if status else ""),
    }


def _batch_name(submission: Submission | None) -> str:
    return submission.name if submission else ""


def seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _failure(kind: object, message: str) -> dict[str, object]:
    if kind is None:
        return {"kind": None, "cause": None, "template": None, "host": None}
    cause = cause_of(FailureKind(str(kind)), message)
    return {"kind": kind, "cause": cause.id, "template": cause.template, "host": cause.host}


def job_of(row: sqlite3.Row) -> BoardJob:
    return BoardJob(
        jid=row["jid"],
        bid=row["bid"],
        collection=row["collection"],
        owner=row["owner"] or "",
        name=row["name"],
        ark=row["ark"],
        state=JobState(row["state"]),
        priority=row["priority"],
        since=moment_of(row["since"]),
        kind=FailureKind(row["kind"]) if row["kind"] else None,
        cause=row["cause"] or "",
        message=row["message"],
        held=bool(row["held"]),
        waiting=row["waiting"],
    )


def batch_of(row: sqlite3.Row, states: dict[JobState, int]) -> BoardBatch:
    return BoardBatch(
        bid=row["bid"],
        collection=row["collection"],
        owner=row["owner"],
        name=row["name"],
        submitter=row["submitter"],
        status=BatchState(row["status"]),
        since=moment_of(row["since"]),
        submitted_at=moment_of(row["submitted"]),
        total=row["total"],
        jobs=states,
        kind=FailureKind(row["kind"]) if row["kind"] else None,
        cause=row["cause"] or "",
        message=row["message"],
        held=bool(row["held"]),
    )


def moment_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
