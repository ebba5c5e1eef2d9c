"""Lists of jobs: a page and the cursor of the next one. A page reads its rows and nothing else."""

from collections.abc import Iterator

from operations.board.cause import cause_of
from pipeline.errors import UsageRefused
from pipeline.records import Record, age
from pipeline.states import JOB, JobState
from zkstate import batches, listings, views
from zkstate.session import Session
from zkstate.views import JobRow, Unreadable


class JobFilter(Record):
    """Which jobs: every condition that is given has to hold."""

    bid: str | None = None
    profile: str | None = None
    state: JobState | None = None
    cause: str | None = None
    """The id of a group of failures."""
    older_than: float | None = None
    """Seconds since the job last moved."""

    def admits(self, row: JobRow) -> bool:
        return (
            self.bid in (None, row.bid)
            and self.profile in (None, row.profile)
            and self.state in (None, row.state)
            and self.cause in (None, _cause(row))
            and (self.older_than is None or age(row.since) >= self.older_than)
        )

    @property
    def listed(self) -> bool:
        """True if the listings alone say which jobs are meant, so that none has to be read for that."""
        return self.profile is None and self.older_than is None and self.cause is None

    @property
    def by_priority(self) -> bool:
        return self.bid is None and self.state is not None and not JOB.facts[self.state].ended

    def cursor(self, row: JobRow) -> str:
        return f"{row.priority:02d}-{row.jid}" if self.by_priority else row.jid


class JobList(Record):
    """One page of jobs."""

    jobs: tuple[JobRow, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Jobs of this page whose record is damaged."""
    total: int | None = None
    """How many jobs there are on all pages; None if every one of them would have to be read for that."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""


def list_jobs(session: Session, conditions: JobFilter, limit: int, after: str | None = None) -> JobList:
    """At most `limit` jobs that follow the cursor `after`.

    Jobs of a batch come in their order, active jobs of a state in the queue's order, others newest first.
    """
    names = _cursors(session, conditions)
    rest = names if after is None else _following(names, after, conditions)
    jobs: list[JobRow] = []
    unreadable: list[Unreadable] = []
    for row in views.job_rows(session, _jids(rest), limit if conditions.listed else views.READ_PAGE):
        if isinstance(row, Unreadable):
            unreadable.append(row)
        elif conditions.admits(row):
            jobs.append(row)
        if len(jobs) == limit:
            break
    last = conditions.cursor(jobs[-1]) if len(jobs) == limit else None
    complete = after is None and last is None
    total = len(names) if conditions.listed else len(jobs) if complete else None
    more = last is not None and last != rest[-1]
    return JobList(jobs=tuple(jobs), unreadable=tuple(unreadable), total=total, next=last if more else None)


def find(session: Session, conditions: JobFilter) -> Iterator[JobRow]:
    """Every job that the filter admits and that can be read."""
    rows = views.job_rows(session, _jids(_cursors(session, conditions)))
    return (row for row in views.readable(rows) if conditions.admits(row))


def _cause(row: JobRow) -> str:
    """The id of its group of failures; empty if it has not failed."""
    if row.state is not JobState.FAILED or row.kind is None:
        return ""
    return cause_of(row.kind, row.message).id


def _cursors(session: Session, conditions: JobFilter) -> list[str]:
    """The cursors of all jobs that may be meant, in the order of the list."""
    if conditions.bid is not None:
        batches.load(session, conditions.bid)
        return listings.of_batch(session, conditions.bid, conditions.state)
    if conditions.state is None:
        return listings.all_jobs(session)[::-1]
    if conditions.state is JobState.COMPLETED:
        return listings.completed_jobs(session)[::-1]
    entries = listings.in_queue(session, conditions.state)
    return entries if conditions.by_priority else sorted(_jids(entries), reverse=True)


def _following(names: list[str], after: str, conditions: JobFilter) -> list[str]:
    jid = after[3:] if conditions.by_priority else after
    if not jid.startswith("jid") or (conditions.by_priority and after[2] != "-"):
        raise UsageRefused(f"'{after}' is not a cursor of this list: take `next` of the page before")
    newest_first = conditions.bid is None and not conditions.by_priority
    return [name for name in names if (name < after if newest_first else name > after)]


def _jids(cursors: list[str]) -> list[str]:
    return [cursor.rpartition("-")[2] for cursor in cursors]
