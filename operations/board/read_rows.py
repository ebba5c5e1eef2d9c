"""Rows of the tables as values of the board."""

import sqlite3
from datetime import UTC, datetime

from operations.board.values import BoardBatch, BoardJob
from pipeline.states import BatchState, FailureKind, JobState


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
