"""The archive of batches and jobs that have left ZooKeeper, and of reports, for depositors and auditors.

Rule: a later entry replaces an earlier one, because it was read from the record later. Only the actor, date
and reason of a deletion keep their first values, so that repeating a deletion after a crash changes nothing.
A batch is written after its jobs, so that a batch in the archive is complete.

A report is stored before it is sent. A repeated attempt sends the stored report, even if jobs have changed
since, because the first attempt may have sent it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self

from pydantic import Field
from sqlalchemy import Connection, RowMapping, Table, Text, and_, cast, not_, select

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import (
    NAMES_AT_A_TIME,
    batches_archived,
    insert,
    jobs_archived,
    portions,
    reports_sent,
)
from pipeline.names import hide_secrets
from pipeline.records import Batch, HistoryEntry, Identifiers, Job, JobConfiguration, Record, Submission, now
from pipeline.states import FAILING, BatchState, Event, FailureKind, JobState

JOBS_PER_TRANSACTION = 500
"""Rows per statement; a job's row has a few kilobytes."""


class Disposition(Record):
    """The removal from the record: person, time and reason."""

    who: str
    why: str = ""
    at: datetime = Field(default_factory=now)


class _Archived(Record):
    bid: str
    profile: str
    submitter: str
    message: str
    disposition: Disposition

    @classmethod
    def of_row(cls, row: RowMapping) -> Self:
        return cls.model_validate({**row, "disposition": dict(row)})


class ArchivedJob(_Archived):
    jid: str
    state: JobState
    kind: FailureKind | None
    remark: str
    identifiers: Identifiers
    configuration: JobConfiguration
    history: tuple[HistoryEntry, ...]

    @property
    def name(self) -> str:
        return self.configuration.name

    @property
    def since(self) -> datetime:
        """When the job entered its state, by its history; without one, the date of the removal."""
        if self.state is JobState.DELETED:
            return self.disposition.at
        ended = (entry for entry in reversed(self.history) if entry.event in (Event.SUCCEED, *FAILING))
        return next((entry.at for entry in ended), self.disposition.at)


class ArchivedBatch(_Archived):
    state: BatchState
    submission: Submission

    @property
    def name(self) -> str:
        return self.submission.name


def archive_jobs(
    inventory: SqlInventory, jobs: Iterable[Job], *, by: str, reason: str = "", deleted: bool = False
) -> Iterator[Job]:
    """Archive the jobs of an ended batch lazily: a job is yielded once it is archived.

    `deleted`: the batch is deleted, so its jobs get tombstones, except that completed jobs stay completed.
    """
    disposition = Disposition(who=by, why=reason)
    for portion in portions(jobs, JOBS_PER_TRANSACTION):
        rows = [_job_row(job, _state(job, deleted), disposition) for job in portion]
        inventory.database.write(partial(_put, table=jobs_archived, rows=rows))
        yield from portion


def _state(job: Job, deleted: bool) -> JobState:
    state = job.status.status
    return JobState.DELETED if deleted and state is not JobState.COMPLETED else state


def archive_batch(
    inventory: SqlInventory,
    batch: Batch,
    jobs: Iterable[Job] = (),
    *,
    by: str,
    reason: str = "",
    report: Mapping[str, Any] | Record | None = None,
) -> None:
    """Archive an ended batch, with those of its jobs that `archive_jobs` has not archived."""
    disposition = Disposition(who=by, why=reason)
    _write(
        inventory,
        [_batch_row(batch, batch.status.status, disposition, report)],
        (_job_row(job, job.status.status, disposition) for job in jobs),
    )


def tombstone(
    inventory: SqlInventory,
    deleted: Job | Batch,
    *,
    by: str,
    reason: str,
    jobs: Iterable[Job] = (),
    report: Mapping[str, Any] | Record | None = None,
) -> None:
    """Archive a job, or a batch with its remaining `jobs`, as deleted; called before znodes are removed."""
    disposition = Disposition(who=by, why=reason)
    rows = (_job_row(job, JobState.DELETED, disposition) for job in jobs)
    if isinstance(deleted, Job):
        _write(inventory, (), [_job_row(deleted, JobState.DELETED, disposition)])
    else:
        _write(inventory, [_batch_row(deleted, BatchState.DELETED, disposition, report)], rows)


def find_job(inventory: SqlInventory, jid: str) -> ArchivedJob | None:
    rows = inventory.database.rows(select(jobs_archived).where(jobs_archived.c.jid == jid))
    return ArchivedJob.of_row(rows[0]) if rows else None


def find_jobs(inventory: SqlInventory, jids: Iterable[str]) -> Iterator[ArchivedJob]:
    """The archived ones among these jobs."""
    for portion in portions(jids, NAMES_AT_A_TIME):
        query = select(jobs_archived).where(jobs_archived.c.jid.in_(portion))
        yield from map(ArchivedJob.of_row, inventory.database.rows(query))


def find_batch(inventory: SqlInventory, bid: str) -> ArchivedBatch | None:
    """The archived batch without its report, which may have many megabytes."""
    columns = (column for column in batches_archived.c if column is not batches_archived.c.report)
    rows = inventory.database.rows(select(*columns).where(batches_archived.c.bid == bid))
    return ArchivedBatch.of_row(rows[0]) if rows else None


def find_report(inventory: SqlInventory, bid: str) -> str | None:
    """The last report of an archived batch, as JSON that `pipeline.notify.report_mail.as_json` wrote."""
    text = cast(batches_archived.c.report, Text)
    rows = inventory.database.rows(select(text.label("report")).where(batches_archived.c.bid == bid))
    return rows[0]["report"] if rows and rows[0]["report"] != "null" else None


def jobs_of(inventory: SqlInventory, bid: str, last: str = "") -> Iterator[ArchivedJob]:
    """The archived jobs of a batch after `last`, read in portions; the batch may still be in ZooKeeper."""
    while True:
        portion = select(jobs_archived).where(jobs_archived.c.bid == bid, jobs_archived.c.jid > last)
        rows = inventory.database.rows(portion.order_by(jobs_archived.c.jid).limit(JOBS_PER_TRANSACTION))
        yield from map(ArchivedJob.of_row, rows)
        if len(rows) < JOBS_PER_TRANSACTION:
            return
        last = rows[-1]["jid"]


def _write(
    inventory: SqlInventory, batches: Sequence[dict[str, Any]], jobs: Iterable[dict[str, Any]]
) -> None:
    """Write the jobs, in transactions short enough for other writers, and then their batch."""
    for portion in portions(jobs, JOBS_PER_TRANSACTION):
        inventory.database.write(partial(_put, table=jobs_archived, rows=portion))
    for row in batches:
        inventory.database.write(partial(_put, table=batches_archived, rows=[row]))


def _put(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    statement = insert(connection, table)
    written = statement.excluded
    (key,) = table.primary_key.columns
    deleted_before = and_(table.c.state == "deleted", written.state == "deleted")
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[key],
            set_={column.name: written[column.name] for column in table.columns if column is not key},
            where=not_(deleted_before),
        ),
        rows,
    )


def _without_secrets(given: Submission | JobConfiguration) -> dict[str, Any]:
    """The values without the URL's secrets: nothing is fetched by the archive's entries."""
    return given.model_dump(mode="json") | {"payload_url": hide_secrets(given.payload_url)}


def _batch_row(
    batch: Batch, state: BatchState, by: Disposition, report: Mapping[str, Any] | Record | None
) -> dict[str, Any]:
    return {
        "bid": batch.bid,
        "profile": batch.submission.profile_name,
        "submitter": batch.submission.submitter,
        "state": state.value,
        "message": batch.status.message,
        **by.model_dump(),
        "submission": _without_secrets(batch.submission),
        "report": report,
    }


def _job_row(job: Job, state: JobState, by: Disposition) -> dict[str, Any]:
    return {
        "jid": job.jid,
        "bid": job.bid,
        "profile": job.configuration.profile_name,
        "submitter": job.configuration.submitter,
        "state": state.value,
        "message": job.status.message,
        "kind": job.status.kind and job.status.kind.value,
        "remark": job.status.remark,
        **by.model_dump(),
        "ark": job.identifiers.primary_id,
        "identifiers": job.identifiers.model_dump(mode="json"),
        "configuration": _without_secrets(job.configuration),
        "history": [entry.model_dump(mode="json") for entry in job.history],
    }


class SentReport(Record):
    number: int
    at: datetime
    report: Mapping[str, Any] | Record
    """In the form of `pipeline.notify.report_mail.as_json`; of an update, only the changes."""
    text: str
    """The text of the mail."""


def keep_report(inventory: SqlInventory, bid: str, sent: SentReport) -> None:
    row = {"bid": bid, **dict(sent)}  # model_dump would unpack the lines of all jobs

    def write(connection: Any) -> None:
        statement = insert(connection, reports_sent)
        changes = {name: statement.excluded[name] for name in ("at", "report", "text")}
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[reports_sent.c.bid, reports_sent.c.number], set_=changes
            ),
            row,
        )

    inventory.database.write(write)


def kept_report(inventory: SqlInventory, bid: str, number: int, at: datetime) -> SentReport | None:
    """The stored report with this number, if its composition began `at` this time; else None."""
    query = select(reports_sent).where(reports_sent.c.bid == bid, reports_sent.c.number == number)
    sent = [SentReport.model_validate(dict(row)) for row in inventory.database.rows(query)]
    return sent[0] if sent and sent[0].at == at else None


def sent_reports(inventory: SqlInventory, bid: str) -> tuple[SentReport, ...]:
    """The reports in the order sent; none if releases before 0.2.1 sent them."""
    query = select(reports_sent).where(reports_sent.c.bid == bid).order_by(reports_sent.c.number)
    return tuple(SentReport.model_validate(dict(row)) for row in inventory.database.rows(query))
