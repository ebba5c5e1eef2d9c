"""Lists of jobs. The board says which jobs; the record says what they are, for the rows that are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.board.values import BoardJob, JobPage, JobSearch, Scope, cause_of
from pipeline.records import Record
from pipeline.states import JobState
from zkstate.connection.session import Session
from zkstate.queue import listings
from zkstate.queue.listings import JobRow, Unreadable

if TYPE_CHECKING:
    from operations.board.board import Board


class JobList(Record):
    """One page of jobs."""

    jobs: tuple[JobRow, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Jobs of this page whose record is damaged."""
    total: int | None = None
    """How many jobs there are on all pages."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""


def rows(
    session: Session, board: Board, scope: Scope, search: JobSearch, limit: int, after: str | None = None
) -> JobPage:
    """A page of the jobs that the board finds, with what the record says of the jobs.

    A job that is not in the record any more is as the board has it; while ZooKeeper is away, all of them are.
    """
    page = board.jobs(scope, search, limit, after)
    if not session.connected:
        return page
    read = {
        row.id if isinstance(row, Unreadable) else row.jid: row
        for row in listings.job_rows(session, [row.jid for row in page.rows])
    }
    unreadable = tuple(row for row in read.values() if isinstance(row, Unreadable))
    shown = (
        _with_record(row, recorded) if isinstance(recorded := read.get(row.jid), JobRow) else row
        for row in page.rows
    )
    return page.model_copy(update={"rows": tuple(shown), "unreadable": unreadable})


def _with_record(row: BoardJob, recorded: JobRow) -> BoardJob:
    fields = recorded.model_dump(exclude={"jid", "bid", "profile"})
    failed = recorded.state is JobState.FAILED and recorded.kind is not None
    cause = cause_of(recorded.kind, recorded.message).id if failed and recorded.kind else ""
    moved = {} if recorded.state is row.state else {"held": False, "waiting": "", "usual": None}
    return row.model_copy(update={**fields, **moved, "cause": cause})
