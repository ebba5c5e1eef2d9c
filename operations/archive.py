"""Jobs and batches wherever they are: in ZooKeeper or, once they have left, in the SQL archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from pipeline.notify.report.compose import BatchReport
from pipeline.records import Batch, Job, Record
from zkstate import batches, jobs
from zkstate.errors import Missing
from zkstate.session import Session

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob, Disposition
    from pipeline.inventory.sql import SqlInventory

Archive: TypeAlias = "Callable[[], SqlInventory | None]"
"""Called only when something is not in ZooKeeper: to load SQLAlchemy and open a database takes long."""


class Gone(Record):
    """Who took it out of ZooKeeper, when and why."""

    by: str
    reason: str
    at: datetime

    @classmethod
    def of(cls, disposition: Disposition) -> Gone:
        return cls(by=disposition.who, reason=disposition.why, at=disposition.at)


def no_archive() -> None:
    """An Archive for callers that have none."""


def load_job(session: Session, jid: str, archive: Archive) -> Job | ArchivedJob:
    """Missing if the job is neither in ZooKeeper nor in the archive."""
    try:
        return jobs.load(session, jid)
    except Missing:
        if (inventory := archive()) is not None:
            from pipeline.inventory.archive import find_job

            if archived := find_job(inventory, jid):
                return archived
        raise


def load_batch(session: Session, bid: str, archive: Archive) -> Batch | ArchivedBatch:
    """Missing if the batch is neither in ZooKeeper nor in the archive."""
    try:
        return batches.load(session, bid)
    except Missing:
        if (inventory := archive()) is not None:
            from pipeline.inventory.archive import find_batch

            if archived := find_batch(inventory, bid):
                return archived
        raise


def archived_jobs(archive: Archive, bid: str) -> Iterator[ArchivedJob]:
    """The archived jobs of a batch, which may itself still be in ZooKeeper; none without an archive."""
    if (inventory := archive()) is not None:
        from pipeline.inventory.archive import jobs_of

        yield from jobs_of(inventory, bid)


def archived_report(archive: Archive, bid: str) -> BatchReport | None:
    """The last report of an archived batch; a report may have many megabytes."""
    if (inventory := archive()) is None:
        return None
    from pipeline.inventory.archive import find_report

    text = find_report(inventory, bid)
    return None if text is None else BatchReport.model_validate_json(text)
