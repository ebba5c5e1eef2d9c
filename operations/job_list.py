"""Many jobs at a glance, read in few flights."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from operations.wording import age
from pipeline.records import Identifiers, JobConfiguration, JobStatus, Record
from pipeline.states import FailureKind, JobState
from zkstate import batches, codec, paths, queue
from zkstate.session import Session

FLIGHT = 200
"""Jobs read at a time, three nodes each: the requests of one flight fill some 60 kB."""


class JobRow(Record):
    """One line of a list of jobs."""

    jid: str
    bid: str
    profile: str
    name: str
    state: JobState
    since: datetime
    priority: int
    kind: FailureKind | None = None
    message: str = ""
    ark: str = ""
    local_id: tuple[str, ...] = ()
    retry_count: int = 0


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


def rows(session: Session, jids: Sequence[str]) -> Iterator[JobRow]:
    """The jobs of these ids, in their order; one that is gone by now, or not whole, is left out."""
    for start in range(0, len(jids), FLIGHT):
        part = jids[start : start + FLIGHT]
        wanted = [
            path(jid) for jid in part for path in (paths.job_status, paths.configuration, paths.identifiers)
        ]
        found = iter(session.get_many(wanted))
        for jid, nodes in zip(part, zip(found, found, found, strict=True), strict=True):
            if all(node is not None for node in nodes):
                yield _row(jid, [node[0] for node in nodes if node is not None])


def _row(jid: str, data: Sequence[bytes]) -> JobRow:
    status = codec.decode(JobStatus, data[0], paths.job_status(jid))
    configuration = codec.decode(JobConfiguration, data[1], paths.configuration(jid))
    identifiers = codec.decode(Identifiers, data[2], paths.identifiers(jid))
    return JobRow(
        jid=jid,
        bid=configuration.batch_id,
        profile=configuration.profile_name,
        name=configuration.payload_name or configuration.payload_url.rpartition("/")[2],
        state=status.status,
        since=status.last_modification_date,
        priority=status.priority,
        kind=status.kind,
        message=status.message,
        ark=identifiers.primary_id or "",
        local_id=identifiers.local_id,
        retry_count=status.retry_count,
    )


def candidates(session: Session, wanted: JobFilter) -> list[str]:
    """The ids among which the wanted jobs are: those of a batch, of a queue, or all, newest first."""
    if wanted.bid is not None:
        batches.load(session, wanted.bid)
        return batches.all_jobs(session, wanted.bid)
    if wanted.state is not None and wanted.state is not JobState.COMPLETED:
        return queue.queued(session, wanted.state)
    nodes = session.children(paths.JOBS)
    return sorted((name for name in nodes if paths.job(name) != paths.QUEUES), reverse=True)


def find(session: Session, wanted: JobFilter) -> Iterator[JobRow]:
    return (row for row in rows(session, candidates(session, wanted)) if wanted.admits(row))


def list_jobs(session: Session, wanted: JobFilter, limit: int) -> JobList:
    """At most `limit` jobs; `total` counts all, without reading them where that is possible."""
    if wanted == JobFilter():
        jids = candidates(session, wanted)
        return JobList(jobs=tuple(rows(session, jids[:limit])), total=len(jids))
    found = tuple(find(session, wanted))
    return JobList(jobs=found[:limit], total=len(found))
