"""The report of a batch as a value. It is always computed from the record, never counted separately.

Rule: the counts always cover every job of the batch; the lists of an update have only the changes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from pydantic import Field

from pipeline.records import Batch, Job, Record, StatusReport, SubmissionType, now
from pipeline.states import BatchState, FailureKind, JobState

_AGAIN = "submit this object again"
_ADVICE = {
    FailureKind.CONTENT: (
        "Correct the problem described in the message. If you corrected it at the source, ask our staff to "
        f"resume the job; otherwise correct the submission and {_AGAIN}."
    ),
    FailureKind.SYSTEM: (
        "No action needed: our staff will fix this and resume the job. Please do not submit the object again."
    ),
    FailureKind.TRANSIENT: (
        "No action needed: a temporary fault lasted too long. Our staff will resume the job when it is over. "
        "Please do not submit the object again."
    ),
}
_CANNOT_RESUME = f"Correct the problem described in the message and {_AGAIN}; this job cannot be resumed."
_UNKNOWN = "Contact the repository's staff and quote the job's number."
_NOT_SPLIT = {
    FailureKind.CONTENT: "Correct the problem described in the message and submit the batch again.",
    FailureKind.SYSTEM: "Our staff must fix this first. Submit the batch again after that.",
    FailureKind.TRANSIENT: (
        "A temporary fault lasted too long. Submit the batch again when the fault is over."
    ),
}


class ReportedJob(Record):
    jid: str
    name: str
    local_id: tuple[str, ...] = ()
    ark: str | None = None
    title: str = ""
    state: JobState
    kind: FailureKind | None = None
    message: str = ""
    advice: str = ""


class Counts(Record):
    """The jobs of the whole batch by outcome."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    unfinished: int = 0
    deleted: int = 0


class BatchReport(Record):
    bid: str
    profile_name: str
    submitter: str
    payload_name: str
    payload_type: SubmissionType
    note: str
    submitted_at: datetime
    number: int = Field(ge=1)
    """1 is the first report; updates continue from 2."""
    reported_at: datetime
    since: datetime | None = None
    """Set in an update: the date of the previous report."""
    status: BatchState
    """Completed or failed."""
    message: str = ""
    """Why the batch itself failed, if it did."""
    advice: str = ""
    counts: Counts
    completed: tuple[ReportedJob, ...] = ()
    failed: tuple[ReportedJob, ...] = ()
    unfinished: tuple[ReportedJob, ...] = ()
    deleted: tuple[ReportedJob, ...] = ()


def compose_report(
    batch: Batch,
    jobs: Iterable[Job],
    deleted: Mapping[str, str] | None = None,
    *,
    number: int = 1,
    at: datetime | None = None,
) -> BatchReport:
    """The outcome of every job of the batch.

    `deleted`: the ids of jobs that were deleted from the batch, with the reason in the tombstone, or "".
    """
    reported = sorted((_reported(job) for job in jobs), key=lambda job: job.jid)
    completed = tuple(job for job in reported if job.state is JobState.COMPLETED)
    failed = tuple(job for job in reported if job.state is JobState.FAILED)
    removed = {job.jid: job for job in reported if job.state is JobState.DELETED}
    for jid, reason in (deleted or {}).items():
        removed.setdefault(jid, ReportedJob(jid=jid, name="", state=JobState.DELETED, message=reason))
    ended = {job.jid for job in (*completed, *failed)} | removed.keys()
    unfinished = tuple(job for job in reported if job.jid not in ended)
    submission = batch.submission
    all_completed = bool(completed) and not failed and not unfinished and batch.status.kind is None
    return BatchReport(
        bid=batch.bid,
        profile_name=submission.profile_name,
        submitter=submission.submitter,
        payload_name=submission.payload_filename or _last_part(submission.payload_url),
        payload_type=submission.type,
        note=submission.note,
        submitted_at=submission.submitted_at,
        number=number,
        reported_at=at or now(),
        status=BatchState.COMPLETED if all_completed else BatchState.FAILED,
        message=batch.status.message if batch.status.kind else "",
        advice=_NOT_SPLIT[batch.status.kind] if batch.status.kind else "",
        counts=Counts(
            total=len(completed) + len(failed) + len(unfinished) + len(removed),
            completed=len(completed),
            failed=len(failed),
            unfinished=len(unfinished),
            deleted=len(removed),
        ),
        completed=completed,
        failed=failed,
        unfinished=unfinished,
        deleted=tuple(removed[jid] for jid in sorted(removed)),
    )


def status_report_of(report: BatchReport) -> StatusReport:
    """The state to record once this report of the whole batch was sent; an update's lists are incomplete."""
    return StatusReport(
        last_modified=report.reported_at,
        failed_jobs=tuple(job.jid for job in (*report.failed, *report.unfinished)),
        successful_jobs=tuple(job.jid for job in report.completed),
    )


def compose_update(report: BatchReport, since: StatusReport) -> BatchReport | None:
    """The report without what an earlier report said; None if nothing changed since.

    For the depositor, a job that failed, was resumed and failed again has not changed.
    """
    failed_before, completed_before = set(since.failed_jobs), set(since.successful_jobs)
    reported_before = failed_before | completed_before
    changed = {
        "completed": tuple(job for job in report.completed if job.jid not in completed_before),
        "failed": tuple(job for job in report.failed if job.jid not in failed_before),
        "unfinished": tuple(job for job in report.unfinished if job.jid not in reported_before),
        "deleted": tuple(job for job in report.deleted if job.jid in failed_before),
    }
    if not any(changed.values()):
        return None
    return report.model_copy(update={**changed, "since": since.last_modified})


def _reported(job: Job) -> ReportedJob:
    configuration, status = job.configuration, job.status
    failed = status.status is JobState.FAILED
    return ReportedJob(
        jid=job.jid,
        name=configuration.payload_name or _last_part(configuration.payload_url),
        local_id=job.identifiers.local_id,
        ark=job.identifiers.primary_id,
        title=configuration.erc_what,
        state=status.status,
        kind=status.kind if failed else None,
        message=status.message if failed else "",
        advice=_advice(job) if failed else "",
    )


def _advice(job: Job) -> str:
    kind = job.status.kind
    if kind is FailureKind.CONTENT and job.status.last_successful_status is None:
        return _CANNOT_RESUME
    return _ADVICE[kind] if kind else _UNKNOWN


def _last_part(url: str) -> str:
    """The file name in a URL; other parts of a URL may contain a password."""
    try:
        return unquote(PurePosixPath(urlsplit(url).path).name)
    except ValueError:
        return ""
