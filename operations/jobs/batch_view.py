"""A batch for people: its progress, failures with reasons, last sent report, and current report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from operations.site import Site
from operations.visibility import Gone, archived_jobs, archived_report, visible_batch
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.http.urls import redact_url
from pipeline.inventory import archive
from pipeline.notify.batch_report import (
    BatchReport,
    ReportedJob,
    ReportedJobs,
    compose_reported,
    reported_job,
    status_report_of,
)
from pipeline.principal import Principal
from pipeline.records import Batch, Job, Record, StatusReport, SubmissionType
from pipeline.states import BATCH, JOB, BatchState, Bucket, FailureKind, JobState
from zkstate.connection.session import Session
from zkstate.queue import listings
from zkstate.record import batches, jobs

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob

LISTED = 1000
"""Maximum number of objects read again when a watched batch has ended."""

FAILURES = 100
"""Maximum number of failed jobs in a view; `jobs` counts all."""


class FailedJob(Record):
    jid: str
    name: str = ""
    kind: FailureKind | None = None
    message: str = ""


class BatchView(Record):
    bid: str
    status: BatchState
    since: datetime
    """Of a batch that an earlier release archived, which did not keep the date: when its last job ended."""
    version: int | None = None
    """Of the status in ZooKeeper, for a verb that must not meet a later state."""
    message: str = ""
    kind: FailureKind | None = None
    name: str = ""
    """The deposit's, else the payload's."""
    profile: str
    submitter: str = ""
    payload_url: str
    payload_type: SubmissionType
    submitted_at: datetime
    total: int | None = None
    """Jobs in all; None until the payload has been split."""
    buckets: dict[Bucket, int]
    jobs: dict[JobState, int]
    percent: float | None = None
    """Jobs that have ended, of a hundred."""
    seconds_left: float | None = None
    """Until the last job has ended, at the batch's pace of the last hour; null while that is not known."""
    failed_jobs: tuple[FailedJob, ...] = ()
    report: StatusReport | None = None
    archived: Gone | None = None
    objects: tuple[ReportedJob, ...] = ()
    """Of a batch that was watched to its end: each object with its ARK, if there are at most LISTED."""

    @property
    def collection(self) -> str:
        return self.profile

    @property
    def ended(self) -> bool:
        return BATCH.facts[self.status].ended

    @property
    def ended_jobs(self) -> int:
        return sum(number for bucket, number in self.buckets.items() if bucket is not Bucket.PROCESSING)


def batch_view(site: Site, principal: Principal, bid: str, *, counts_only: bool = False) -> BatchView:
    """The batch from ZooKeeper or, once it has left, from the archive; Missing if it is in neither.

    With `counts_only` the jobs' states and failures are left out, which is cheap for any number of jobs.
    """
    return batch_view_of(site, visible_batch(site, principal, bid), counts_only=counts_only)


def batch_view_of(site: Site, batch: Batch | ArchivedBatch, *, counts_only: bool = False) -> BatchView:
    facts = {
        "bid": batch.bid,
        "name": batch.submission.name,
        "profile": batch.submission.profile_name,
        "submitter": batch.submission.submitter,
        "payload_url": redact_url(batch.submission.payload_url),
        "payload_type": batch.submission.type,
        "submitted_at": batch.submission.submitted_at,
    }
    if isinstance(batch, Batch):
        return BatchView.model_validate(facts | _now(site.session, batch, counts_only=counts_only))
    at_end = _at_end(batch, archived_report(site, batch.bid), archived_jobs(site, batch.bid))
    return BatchView.model_validate(facts | at_end)


def _now(session: Session, batch: Batch, *, counts_only: bool) -> dict[str, Any]:
    counts = batches.counts(session, batch.bid)
    return {
        "status": batch.status.status,
        "since": batch.status.since,
        "version": batch.version,
        "message": batch.status.message,
        "kind": batch.status.kind,
        "total": batch.status.total,
        "buckets": counts,
        "jobs": {} if counts_only else listings.states_of_batch(session, batch.bid, counts),
        "percent": _percent(batch, counts),
        "failed_jobs": () if counts_only or not counts[Bucket.FAILED] else _failed(session, batch.bid),
        "report": batches.whole_report(session, batch),
    }


def _percent(batch: Batch, counts: dict[Bucket, int]) -> float | None:
    total = batch.status.total
    if total is None:
        return None
    ended = sum(counts.values()) - counts[Bucket.PROCESSING]
    return round(100 * ended / total, 1) if total else 100.0


def _failed(session: Session, bid: str) -> tuple[FailedJob, ...]:
    failed = batches.jobs_in(session, bid, Bucket.FAILED)[:FAILURES]
    return tuple(
        FailedJob(jid=row.jid, name=row.name, kind=row.kind, message=row.message)
        for row in listings.readable(listings.job_rows(session, failed))
    )


def archived_since(site: Site, batch: ArchivedBatch) -> datetime:
    """When an archived batch entered its state; its jobs are read only if its report has no date."""
    report = archived_report(site, batch.bid)
    jobs = archived_jobs(site, batch.bid)
    return _since(batch, report, lambda: max((job.since for job in jobs), default=None))


def _since(batch: ArchivedBatch, report: BatchReport | None, last: Callable[[], datetime | None]) -> datetime:
    """When the batch entered its state; `last`: when the last of its jobs ended."""
    if batch.state is BatchState.DELETED:
        return batch.disposition.at
    return (report and report.ended_at) or last() or batch.disposition.at


def _at_end(batch: ArchivedBatch, report: BatchReport | None, jobs: Iterable[ArchivedJob]) -> dict[str, Any]:
    states: Counter[JobState] = Counter()
    failures: list[FailedJob] = []
    last: datetime | None = None
    for job in jobs:
        states[job.state] += 1
        last = max(last or job.since, job.since)
        if job.state is JobState.FAILED and len(failures) < FAILURES:
            failures.append(FailedJob(jid=job.jid, name=job.name, kind=job.kind, message=job.message))
    sent = report and report.sent_at and batch.state is BatchState.COMPLETED
    buckets: Counter[Bucket | None] = Counter()
    for state, number in states.items():
        buckets[JOB.facts[state].bucket] += number
    return {
        "status": batch.state,
        "since": _since(batch, report, lambda: last),
        "message": batch.message,
        "total": states.total(),
        "buckets": dict.fromkeys(Bucket, 0) | buckets,
        "jobs": dict(states),
        "percent": 100.0,
        "failed_jobs": tuple(failures),
        # a deleted batch's archived state is not the state last sent
        "report": status_report_of(report) if sent and report else None,
        "archived": Gone.of(batch.disposition),
    }


def report(site: Site, principal: Principal, bid: str) -> BatchReport:
    """The state of every job of the batch; once the batch has left ZooKeeper, its archived report."""
    batch = visible_batch(site, principal, bid)
    if isinstance(batch, Batch):
        return compose(site, batch, load_jobs(site, bid))
    archived = archived_report(site, bid)
    if archived is None:
        refused = UsageRefused(f"{bid} was archived without a report")
        raise refused.with_remedies(Remedy(Action.SHOW_STATUS, bid))
    return archived


def with_objects_of(view: BatchView, reported: BatchReport) -> BatchView:
    """The view with the objects of its report."""
    sections = reported.sections
    objects = sorted((job for _, jobs in sections for job in jobs), key=lambda job: job.jid)
    return view.model_copy(update={"objects": tuple(objects)})


def sent_texts(site: Site, principal: Principal, bid: str) -> tuple[str, ...]:
    """The reports exactly as mailed, once the batch has left ZooKeeper; none before that."""
    if isinstance(visible_batch(site, principal, bid), Batch) or (inventory := site.archive()) is None:
        return ()
    return tuple(sent.text for sent in archive.sent_reports(inventory, bid))


def load_jobs(site: Site, bid: str) -> Iterator[Job]:
    """The jobs that a batch in ZooKeeper still has, loaded lazily."""
    return jobs.load_present(site.session, listings.of_batch(site.session, bid))


def compose(
    site: Site,
    batch: Batch,
    members: Iterable[Job],
    line: Callable[[Job], ReportedJob] = reported_job,
) -> BatchReport:
    """The report of a batch in ZooKeeper with these jobs; tombstones give the reasons for deleted jobs.

    Only one line per job is kept: a batch may have more jobs than fit into memory.
    """
    lines = ReportedJobs.of(map(line, members))
    present = {line.jid for line in lines}
    gone = [jid for jid in batches.all_jobs(site.session, batch.bid) if jid not in present]
    return compose_reported(batch, lines, tombstones(site, gone))


def tombstones(site: Site, gone: Sequence[str]) -> dict[str, ArchivedJob | None]:
    """JID -> the tombstone of a deleted job; None if the archive has none."""
    deleted: dict[str, ArchivedJob | None] = dict.fromkeys(gone)
    if gone and (inventory := site.archive()) is not None:
        deleted |= {job.jid: job for job in archive.find_jobs(inventory, gone)}
    return deleted
