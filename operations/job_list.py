"""Many jobs at a glance, read in few flights."""

from collections.abc import Iterator

from operations.wording import age
from pipeline.records import Record
from pipeline.states import JobState
from zkstate import batches, queue, views
from zkstate.session import Session
from zkstate.views import JobRow


class JobFilter(Record):
    """Which jobs: every condition that is given has to hold."""

    bid: str | None = None
    profile: str | None = None
    state: JobState | None = None
    older_than: float | None = None
    """Seconds since the job last moved."""

    def admits(self, row: JobRow) -> bool:
        return (
            self.bid in (None, row.bid)
            and self.profile in (None, row.profile)
            and self.state in (None, row.state)
            and (self.older_than is None or age(row.since) >= self.older_than)
        )


class JobList(Record):
    """The first `jobs`, and how many there are in all."""

    jobs: tuple[JobRow, ...]
    total: int


def candidates(session: Session, wanted: JobFilter) -> list[str]:
    """The ids among which the wanted jobs are: those of a batch, of a queue, or all, newest first."""
    if wanted.bid is not None:
        batches.load(session, wanted.bid)
        return batches.all_jobs(session, wanted.bid)
    if wanted.state is not None and wanted.state is not JobState.COMPLETED:
        return queue.queued(session, wanted.state)
    return views.all_jobs(session)


def find(session: Session, wanted: JobFilter) -> Iterator[JobRow]:
    return (
        row
        for row in views.readable(views.job_rows(session, candidates(session, wanted)))
        if wanted.admits(row)
    )


def list_jobs(session: Session, wanted: JobFilter, limit: int) -> JobList:
    """At most `limit` jobs; `total` counts all, without reading them where that is possible."""
    if wanted == JobFilter():
        jids = candidates(session, wanted)
        return JobList(jobs=tuple(views.readable(views.job_rows(session, jids[:limit]))), total=len(jids))
    found = tuple(find(session, wanted))
    return JobList(jobs=found[:limit], total=len(found))
