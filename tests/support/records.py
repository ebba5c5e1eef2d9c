"""Batches and jobs as the record has them, in any state."""

from datetime import UTC, datetime
from typing import Any

from pipeline.inventory.archive import ArchivedJob, Disposition
from pipeline.records import (
    Batch,
    BatchStatus,
    HistoryEntry,
    Identifiers,
    Job,
    JobConfiguration,
    JobStatus,
    PayloadType,
    StatusReport,
    Submission,
    SubmissionType,
)
from pipeline.states import BatchState, FailureKind, JobState

BID = "bid0000000001"
AT = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)


def jid(number: int) -> str:
    return f"jid{number:010d}"


def bid(number: int) -> str:
    return f"bid{number:010d}"


def a_submission(**facts: Any) -> Submission:
    usual = {
        "profile_name": "demo",
        "submitter": "me/Me",
        "payload_url": "http://source.example/batch.checkm",
        "type": SubmissionType.BATCH_MANIFEST,
        "payload_filename": "batch.checkm",
        "submitted_at": AT,
    }
    return Submission(**{**usual, **facts})


def a_batch(
    state: BatchState = BatchState.REPORTING,
    report: StatusReport | None = None,
    *,
    message: str = "",
    kind: FailureKind | None = None,
    **submission: Any,
) -> Batch:
    status = BatchStatus(status=state, last_modified=AT, message=message, kind=kind)
    return Batch(bid=BID, submission=a_submission(**submission), status=status, version=3, report=report)


def a_job(number: int = 1, state: JobState = JobState.COMPLETED, **facts: Any) -> Job:
    """A job; `facts` go to its configuration, status or identifiers, by field name."""
    configuration = {
        "batch_id": BID,
        "profile_name": "demo",
        "submitter": "me/Me",
        "payload_url": f"http://source.example/{number}.checkm",
        "payload_type": PayloadType.OBJECT_MANIFEST,
        "payload_name": f"{number}.checkm",
        "working_dir": f"/nowhere/{jid(number)}",
        "submission_type": SubmissionType.BATCH_MANIFEST,
        "submitted_at": AT,
    }
    status = {"status": state, "last_modification_date": AT}
    identifiers = {"primary_id": f"ark:/99999/fk4{number}"}
    for name, value in facts.items():
        owner = next(
            part
            for part, kind in (
                (configuration, JobConfiguration),
                (status, JobStatus),
                (identifiers, Identifiers),
            )
            if name in kind.model_fields
        )
        owner[name] = value
    return Job(
        jid=jid(number),
        bid=str(configuration["batch_id"]),
        configuration=JobConfiguration(**configuration),
        identifiers=Identifiers(**identifiers),
        status=JobStatus(**status),
        version=7,
        priority=5,
        space_needed=0,
        history=(HistoryEntry(state=state, at=AT, by="worker-1"),),
    )


def a_tombstone(number: int, reason: str = "", **facts: Any) -> ArchivedJob:
    """A deleted job as the archive has it."""
    job = a_job(number, JobState.DELETED, **facts)
    return ArchivedJob(
        jid=job.jid,
        bid=job.bid,
        profile="demo",
        submitter="me/Me",
        message="",
        disposition=Disposition(who="operator", why=reason, at=AT),
        state=JobState.DELETED,
        kind=None,
        remark="",
        identifiers=job.identifiers,
        configuration=job.configuration,
        history=job.history,
    )
