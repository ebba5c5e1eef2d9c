"""A batch's report as a value, computed from the record each time and never counted up beside it.

Rule: the counts always tell how every job stands; the lists of an update hold only what changed.
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
        "Correct what the message names. If the fault was at the source and is corrected there, "
        f"an operator can resume the job; otherwise correct the submission and {_AGAIN}."
    ),
    FailureKind.SYSTEM: (
        "Nothing for you: an operator has to act, then resumes the job. Do not submit it again."
    ),
    FailureKind.TRANSIENT: (
        "Nothing for you: a passing fault lasted too long, and an operator resumes the job when it is over. "
        "Do not submit it again."
    ),
}
_NEVER_BEGUN = f"Correct what the message names and {_AGAIN}; this job cannot be resumed."
_UNKNOWN = "Ask the repository's operator, naming the job."
_NOT_SPLIT = {
    FailureKind.CONTENT: "Correct what the message names and submit the batch again.",
    FailureKind.SYSTEM: "An operator has to act; after that, submit the batch again.",
    FailureKind.TRANSIENT: "A passing fault lasted too long: submit the batch again when it is over.",
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
    """How the jobs of the whole batch stand."""

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
    """1 is the first report, the updates count on."""
    reported_at: datetime
    since: datetime | None = None
    """Set in an update: when the depositor was told before."""
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
    """How every job of the batch ended.

    `deleted`: id of each job that was taken out of the batch, with the reason its tombstone gives, or "".
    """
    told = sorted((_reported(job) for job in jobs), key=lambda job: job.jid)
    completed = tuple(job for job in told if job.state is JobState.COMPLETED)
    failed = tuple(job for job in told if job.state is JobState.FAILED)
    out = {job.jid: job for job in told if job.state is JobState.DELETED}
    for jid, reason in (deleted or {}).items():
        out.setdefault(jid, ReportedJob(jid=jid, name="", state=JobState.DELETED, message=reason))
    ended = {job.jid for job in (*completed, *failed)} | out.keys()
    unfinished = tuple(job for job in told if job.jid not in ended)
    submission = batch.submission
    whole = bool(completed) and not failed and not unfinished and batch.status.kind is None
    return BatchReport(
        bid=batch.bid,
        profile_name=submission.profile_name,
        submitter=submission.submitter,
        payload_name=submission.payload_name or _last_part(submission.payload_url),
        payload_type=submission.payload_type,
        note=submission.note,
        submitted_at=submission.submitted_at,
        number=number,
        reported_at=at or now(),
        status=BatchState.COMPLETED if whole else BatchState.FAILED,
        message=batch.status.message if batch.status.kind else "",
        advice=_NOT_SPLIT[batch.status.kind] if batch.status.kind else "",
        counts=Counts(
            total=len(completed) + len(failed) + len(unfinished) + len(out),
            completed=len(completed),
            failed=len(failed),
            unfinished=len(unfinished),
            deleted=len(out),
        ),
        completed=completed,
        failed=failed,
        unfinished=unfinished,
        deleted=tuple(out[jid] for jid in sorted(out)),
    )


def told_by(report: BatchReport) -> StatusReport:
    """What the depositor knows after this report of the whole batch; an update's lists would be too short."""
    return StatusReport(
        last_modified=report.reported_at,
        failed_jobs=tuple(job.jid for job in (*report.failed, *report.unfinished)),
        successful_jobs=tuple(job.jid for job in report.completed),
    )


def compose_update(report: BatchReport, since: StatusReport) -> BatchReport | None:
    """The report less what the depositor was told before; None if nothing changed since.

    A job that failed before, was resumed and failed again has not changed for the depositor.
    """
    failed_before, completed_before = set(since.failed_jobs), set(since.successful_jobs)
    told_before = failed_before | completed_before
    changed = {
        "completed": tuple(job for job in report.completed if job.jid not in completed_before),
        "failed": tuple(job for job in report.failed if job.jid not in failed_before),
        "unfinished": tuple(job for job in report.unfinished if job.jid not in told_before),
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
        return _NEVER_BEGUN
    return _ADVICE[kind] if kind else _UNKNOWN


def _last_part(url: str) -> str:
    """The file's name in a URL, whose other parts may hold a password."""
    try:
        return unquote(PurePosixPath(urlsplit(url).path).name)
    except ValueError:
        return ""
