"""The report of a batch as a value, always computed from the record and never counted separately.

Rule: the counts always cover every job of the batch; the lists of an update have only the changes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pipeline.checks import CheckFinding, CheckSummary, CheckVerdict, first_named
from pipeline.description import metadata
from pipeline.humanize import counted
from pipeline.packed import Packed, packed_groups
from pipeline.records import (
    Batch,
    Entry,
    HistoryEntry,
    Identifiers,
    Job,
    JobConfiguration,
    JobStatus,
    Record,
    StatusReport,
    SubmissionType,
    now,
)
from pipeline.states import BATCH, FAILING, JOB, BatchState, Event, FailureKind, JobState

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedJob


@dataclass(frozen=True)
class JobOutcome:
    jid: str
    configuration: JobConfiguration
    identifiers: Identifiers
    status: JobStatus
    history: tuple[HistoryEntry, ...] = ()
    """The history of a failed job; a report does not use the history of other jobs."""


REPORTED_FINDINGS = 1_000
"""Findings that a report names; those of further objects are only counted."""


class ReportedCheck(Record):
    """What a check of the deposited files found, without the name of whoever decided about it."""

    check: str
    version: str
    """Of the check."""
    at: datetime
    """The end of the run."""
    fine: int
    """Files by their worst verdict, as are `found` and `unchecked`."""
    found: int
    unchecked: int
    """Files that were not checked, or not completely."""
    findings: tuple[CheckFinding, ...] = ()
    """The first that stop the job or are remarked."""
    overruled: bool = False
    """Our staff decided to keep the files as they are."""

    @classmethod
    def of(cls, run: CheckSummary) -> Self:
        facts = {name: getattr(run, name) for name in cls.model_fields}
        return cls(**facts | {"overruled": run.overruled is not None})

    @property
    def not_fine(self) -> int:
        """Files of which the check does not say that nothing is wrong."""
        return self.found + self.unchecked

    def text(self, *, names_files: bool) -> str:
        """`clamav: something found in 1 file: 'a.exe' (Eicar); 2 files not checked; 7 files fine`."""
        numbers = (
            (self.found, f"something found in {counted(self.found, 'file')}", CheckVerdict.FOUND),
            (self.unchecked, f"{counted(self.unchecked, 'file')} not checked", CheckVerdict.UNCHECKED),
            (self.fine, f"{counted(self.fine, 'file')} fine", CheckVerdict.FINE),
        )
        said = []
        for number, text, verdict in numbers:
            named = tuple(finding for finding in self.findings if finding.verdict is verdict)
            if number:
                said.append(f"{text}: {first_named(named)}" if named and names_files else text)
        decided = ["our staff decided to keep what was found"] if self.overruled else []
        return f"{self.check}: {'; '.join((*said, *decided)) or 'no files'}"


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
    cause: str = ""
    """The code of the failure's cause; empty if it was not recorded, or if a person stopped the work."""
    remark: str = ""
    """What the depositor should check, although nothing failed."""
    checks: tuple[ReportedCheck, ...] | None = None
    """The last run of each check; null if none has run, so that nothing is known of the files."""


class ReportedJobs(Packed[ReportedJob]):
    """A list of jobs in reports, JSON and schemas."""

    @classmethod
    def of(cls, jobs: Iterable[ReportedJob]) -> Self:
        return cls(*packed_groups((None, _text(job)) for job in jobs).get(None, ()))

    def decoded(self, text: bytes) -> ReportedJob:
        return ReportedJob.model_validate_json(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read and write one job at a time."""
        jobs = core_schema.generator_schema(handler(ReportedJob))
        written = core_schema.plain_serializer_function_ser_schema(iter, return_schema=jobs)
        return core_schema.no_info_after_validator_function(cls.of, jobs, serialization=written)


def by_state(
    jobs: Iterable[ReportedJob], group: Callable[[ReportedJob], JobState | None]
) -> dict[JobState | None, ReportedJobs]:
    """Group -> its jobs, ordered by id."""
    last, ordered = "", True

    def lines() -> Iterable[tuple[JobState | None, str]]:
        nonlocal last, ordered
        for job in jobs:
            last, ordered = job.jid, ordered and last <= job.jid
            yield group(job), _text(job)

    grouped = {state: ReportedJobs(*packed) for state, packed in packed_groups(lines()).items()}
    if ordered:
        return grouped
    return {
        state: ReportedJobs.of(sorted(packed, key=lambda job: job.jid)) for state, packed in grouped.items()
    }


def _text(job: ReportedJob) -> str:
    return job.model_dump_json(exclude_defaults=True)


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
        "A temporary fault lasted too long. If the message names your server, check that it answers. Our "
        "staff will resume the job when the fault is over. Please do not submit the object again."
    ),
}
_FOUND = (
    f"Replace or remove the files that the message names, and {_AGAIN}. If a file must be kept as it is, "
    "tell our staff why: they can decide to keep it."
)
"""For an object that a finding of a check stopped."""

_CANNOT_RESUME = f"Correct the problem described in the message and {_AGAIN}; this job cannot be resumed."
_NO_SOURCE = f"Correct the problem described in the message and {_AGAIN}."
"""For an uploaded file, which cannot be corrected at a source."""

_UNKNOWN = "Contact the repository's staff and quote the job's number."
_STOPPED = "Ask our staff before you submit this object again."
_CANCELLED = "Ask our staff before you submit the batch again."
_NOT_SPLIT = {
    FailureKind.CONTENT: "Correct the problem described in the message and submit the batch again.",
    FailureKind.SYSTEM: "Our staff must fix this first. Submit the batch again after that.",
    FailureKind.TRANSIENT: (
        "A temporary fault lasted too long. Submit the batch again when the fault is over."
    ),
}


_IN_PROGRESS, _DELETED = "In progress", "Deleted by our staff"

SECTION_ADVICE = {
    _IN_PROGRESS: "No action needed: our staff will send an updated report when these objects have ended.",
    _DELETED: "Our staff took these objects out of the submission. Ask our staff if you expected them.",
}
"""What the depositor should do about all objects of a section."""


NO_JOBS = ReportedJobs()
_ENDED = JOB.where(lambda facts: facts.ended)


class Counts(Record):
    """The jobs of the whole batch by outcome."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    unfinished: int = 0
    deleted: int = 0


# in schemas, the default of a list
_JOBS: Any = Field(default_factory=ReportedJobs, json_schema_extra={"default": []})


class BatchReport(Record):
    bid: str
    profile_name: str
    deposit_name: str | None = None
    """Null if the depositor gave none, and in reports of 0.3.0 and before."""
    submitter: str
    payload_name: str
    payload_type: SubmissionType
    note: str
    submitted_at: datetime
    number: int = Field(ge=1)
    """1 is the first report; updates continue from 2."""
    reported_at: datetime
    """The report gives the state of this moment: the beginning of reporting for a mail, now for a request."""
    sent_at: datetime | None = None
    """When the last report before this one went to the depositor; absent if none did."""
    ended_at: datetime | None = None
    """Since when the batch is in the state in which it ended; absent if it has not."""
    since: datetime | None = None
    """Set in an update: the date of the previous report."""
    status: BatchState
    """Completed or failed."""
    message: str = ""
    """Why the batch itself failed, if it did."""
    advice: str = ""
    counts: Counts
    completed: ReportedJobs = _JOBS
    failed: ReportedJobs = _JOBS
    unfinished: ReportedJobs = _JOBS
    deleted: ReportedJobs = _JOBS

    @property
    def name(self) -> str:
        """The deposit's, else the payload's."""
        return self.deposit_name or self.payload_name

    @property
    def sections(self) -> tuple[tuple[str, ReportedJobs], ...]:
        """The lists with their titles; failures come first, because they need action."""
        return (
            ("Failed", self.failed),
            (_IN_PROGRESS, self.unfinished),
            ("Completed", self.completed),
            (_DELETED, self.deleted),
        )


NONE_DELETED: Mapping[str, "ArchivedJob | None"] = {}


def compose_report(
    batch: Batch,
    jobs: Iterable[Job | JobOutcome],
    deleted: Mapping[str, "ArchivedJob | None"] = NONE_DELETED,
    *,
    at: datetime | None = None,
) -> BatchReport:
    """The outcome of every job of the batch.

    `deleted`: the ids of jobs that were deleted from the batch, with their tombstones.
    """
    return compose_reported(batch, map(reported_job, jobs), deleted, at=at)


def compose_reported(
    batch: Batch,
    lines: Iterable[ReportedJob],
    deleted: Mapping[str, "ArchivedJob | None"] = NONE_DELETED,
    *,
    at: datetime | None = None,
) -> BatchReport:
    """Like `compose_report`, from the report's lines: a caller need not have all jobs in memory."""
    groups = by_state(_with_first_findings(lines), lambda job: job.state if job.state in _ENDED else None)
    completed, failed = (groups.get(state, NO_JOBS) for state in (JobState.COMPLETED, JobState.FAILED))
    removed = {job.jid: job for job in groups.get(JobState.DELETED, NO_JOBS)}
    for jid, tombstone in deleted.items():
        removed.setdefault(jid, reported_deletion(jid, tombstone))
    unfinished = groups.get(None, NO_JOBS)
    if unfinished:  # a job may have ended while others were being read
        ended = {job.jid for jobs in (completed, failed) for job in jobs} | removed.keys()
        unfinished = ReportedJobs.of(job for job in unfinished if job.jid not in ended)
    submission = batch.submission
    cancelled = _by_staff([batch.failed] if batch.failed else [], "our staff cancelled this submission")
    all_completed = bool(completed) and not failed and not unfinished and batch.status.kind is None
    return BatchReport(
        bid=batch.bid,
        profile_name=submission.profile_name,
        deposit_name=submission.deposit_name,
        submitter=submission.submitter,
        payload_name=submission.payload_name,
        payload_type=submission.type,
        note=submission.note,
        submitted_at=submission.submitted_at,
        number=max(batch.status.reports, 1),
        reported_at=at or now(),
        sent_at=batch.report.last_modified if batch.report and batch.report.mailed else None,
        ended_at=batch.status.since if BATCH.facts[batch.status.status].ended else None,
        status=BatchState.COMPLETED if all_completed else BatchState.FAILED,
        message=(cancelled or batch.failure[0]) if batch.status.kind else "",
        advice=(_CANCELLED if cancelled else _NOT_SPLIT[batch.status.kind]) if batch.status.kind else "",
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
        deleted=ReportedJobs.of(removed[jid] for jid in sorted(removed)),
    )


def _with_first_findings(lines: Iterable[ReportedJob]) -> Iterable[ReportedJob]:
    """The lines, of which the first name what checks found: a mail must not grow with every file."""
    room = REPORTED_FINDINGS
    for line in lines:
        room -= sum(len(run.findings) for run in line.checks or ())
        if room >= 0 or line.checks is None:
            yield line
        else:
            counts = tuple(run.model_copy(update={"findings": ()}) for run in line.checks)
            yield line.model_copy(update={"checks": counts})


def status_report_of(report: BatchReport) -> StatusReport:
    """The outcomes in a report of the whole batch, with the date of the last report sent."""
    return StatusReport(
        last_modified=report.sent_at or report.reported_at,
        failed_jobs=tuple(job.jid for job in report.failed),
        successful_jobs=tuple(job.jid for job in report.completed),
        unfinished_jobs=tuple(job.jid for job in report.unfinished),
    )


def known_after(sent: BatchReport, before: StatusReport | None) -> StatusReport:
    """The state that the depositor knows now, right after `sent` was sent.

    `before`: for an update, the state that the depositor knew until then.
    """
    now_known = status_report_of(sent).model_copy(update={"last_modified": now()})
    if before is None:
        return now_known
    over = {job.jid for job in (*sent.completed, *sent.deleted)}
    failed = {jid for jid in before.failed_jobs if jid not in over} | {*now_known.failed_jobs}
    unfinished = {*before.unfinished_jobs, *now_known.unfinished_jobs} - over - failed
    return StatusReport(
        last_modified=now_known.last_modified,
        failed_jobs=tuple(sorted(failed)),
        successful_jobs=tuple(sorted({*before.successful_jobs, *now_known.successful_jobs})),
        unfinished_jobs=tuple(sorted(unfinished)),
    )


def compose_update(report: BatchReport, since: StatusReport) -> BatchReport | None:
    """The report reduced to changes since an earlier report; None if nothing has changed.

    To the depositor, a job that failed, was resumed and failed again has not changed.
    """
    failed_before, completed_before = set(since.failed_jobs), set(since.successful_jobs)
    open_before = failed_before | set(since.unfinished_jobs)
    known = open_before | completed_before
    changed = {
        "completed": _select(report.completed, lambda jid: jid not in completed_before),
        "failed": _select(report.failed, lambda jid: jid not in failed_before),
        "unfinished": _select(report.unfinished, lambda jid: jid not in known),
        "deleted": _select(report.deleted, lambda jid: jid in open_before),
    }
    if not any(changed.values()):
        return None
    return report.model_copy(update={**changed, "since": since.last_modified})


def _select(jobs: ReportedJobs, selects: Callable[[str], bool]) -> ReportedJobs:
    return ReportedJobs.of(job for job in jobs if selects(job.jid))


def reported_job(job: Job | JobOutcome) -> ReportedJob:
    status = job.status
    failed = status.status is JobState.FAILED
    stopped = _by_staff(job.history, "our staff stopped this object")
    return ReportedJob(
        **_names(job),
        state=status.status,
        kind=status.kind if failed else None,
        message=(stopped or status.message) if failed else "",
        advice=(_STOPPED if stopped else _advice(job)) if failed else "",
        cause=status.failure_cause.code if failed and status.failure_cause and not stopped else "",
        remark=status.remark,
        checks=None if status.checks is None else tuple(map(ReportedCheck.of, status.checks)),
    )


def reported_archived(job: "ArchivedJob") -> ReportedJob:
    """The line of a job that is in the archive, which does not keep the runs of its checks."""
    if job.state is JobState.DELETED:
        return reported_deletion(job.jid, job)
    status = JobStatus(status=job.state, kind=job.kind, message=job.message, remark=job.remark)
    return reported_job(JobOutcome(job.jid, job.configuration, job.identifiers, status, job.history))


def deleted_with_batch(job: Job, reason: str) -> ReportedJob:
    """The line of a job whose batch is deleted: a stored object remains, everything else is removed."""
    if job.status.status is JobState.COMPLETED:
        return reported_job(job)
    return ReportedJob(**_names(job), state=JobState.DELETED, message=reason)


def _by_staff(history: Sequence[Entry[Any]], what: str) -> str:
    """What happened and why, if a person stopped the work; empty if a fault or a review ended it."""
    last = next((entry for entry in reversed(history) if entry.event in FAILING), None)
    if last is None or last.event is Event.REJECT or last.via is None:
        return ""
    return f"{what}: {last.reason}" if last.reason else f"{what} and gave no reason"


def reported_deletion(jid: str, tombstone: "ArchivedJob | None") -> ReportedJob:
    if tombstone is None:
        return ReportedJob(jid=jid, name="", state=JobState.DELETED)
    return ReportedJob(**_names(tombstone), state=JobState.DELETED, message=tombstone.disposition.why)


def _names(job: "Job | JobOutcome | ArchivedJob") -> dict[str, Any]:
    """The names that the depositor recognizes the object by."""
    configuration, identifiers = job.configuration, job.identifiers
    return {
        "jid": job.jid,
        "name": configuration.name,
        "local_id": identifiers.local_id,
        "ark": identifiers.primary_id,
        "title": metadata.final_description(configuration, identifiers).what,
    }


def _advice(job: Job | JobOutcome) -> str:
    kind = job.status.kind
    if kind is FailureKind.CONTENT and job.status.last_successful_status is None:
        return _CANNOT_RESUME
    if kind is FailureKind.CONTENT and any(run.stopping for run in job.status.checks or ()):
        return _FOUND
    if kind is FailureKind.CONTENT and job.configuration.is_uploaded:
        return _NO_SOURCE
    return _ADVICE[kind] if kind else _UNKNOWN
