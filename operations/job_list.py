"""Lists of jobs. The board says which jobs; the record says what they are, for the rows that are shown."""

from __future__ import annotations

from operations.board.cause import cause_of
from operations.board.values import BoardJob, JobPage
from pipeline.records import Record
from pipeline.states import JobState
from zkstate import views
from zkstate.session import Session
from zkstate.views import JobRow, Unreadable


class JobList(Record):
    """One page of jobs."""

    jobs: tuple[JobRow, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Jobs of this page whose record is damaged."""
    total: int | None = None
    """How many jobs there are on all pages."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""


def as_recorded(session: Session, page: JobPage) -> JobPage:
    """The page with what the record says of its jobs.

    A job that is not in the record any more is as the board has it; while ZooKeeper is away, all of them are.
    """
    if not session.connected:
        return page
    read = {
        row.id if isinstance(row, Unreadable) else row.jid: row
        for row in views.job_rows(session, [row.jid for row in page.rows])
    }
    unreadable = tuple(row for row in read.values() if isinstance(row, Unreadable))
    rows = (
        _with_record(row, recorded) if isinstance(recorded := read.get(row.jid), JobRow) else row
        for row in page.rows
    )
    return page.model_copy(update={"rows": tuple(rows), "unreadable": unreadable})


def _with_record(row: BoardJob, recorded: JobRow) -> BoardJob:
    fields = recorded.model_dump(exclude={"jid", "bid", "profile"})
    failed = recorded.state is JobState.FAILED and recorded.kind is not None
    cause = cause_of(recorded.kind, recorded.message).id if failed and recorded.kind else ""
    moved = {} if recorded.state is row.state else {"held": False, "waiting": "", "usual": None}
    return row.model_copy(update={**fields, **moved, "cause": cause})
