"""Jobs and batches wherever they are: in ZooKeeper or, once they have left, in the SQL archive.

The archive is opened only for what is not in ZooKeeper: to load SQLAlchemy and open a database takes long.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from pipeline.notify import batch_report
from pipeline.records import Batch, Job, Record
from zkstate.errors import Missing
from zkstate.record import batches, jobs

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob, Disposition
    from pipeline.notify.batch_report import BatchReport


class Gone(Record):
    """Who took it out of ZooKeeper, when and why."""

    by: str
    reason: str
    at: datetime

    @classmethod
    def of(cls, disposition: Disposition) -> Gone:
        return cls(by=disposition.who, reason=disposition.why, at=disposition.at)


def load_job(site: Site, jid: str) -> Job | ArchivedJob:
    """Missing if the job is neither in ZooKeeper nor in the archive."""
    try:
        return jobs.load(site.session, jid)
    except Missing:
        if (inventory := site.archive()) is not None:
            from pipeline.inventory.archive import find_job

            if archived := find_job(inventory, jid):
                return archived
        raise


def load_batch(site: Site, bid: str) -> Batch | ArchivedBatch:
    """Missing if the batch is neither in ZooKeeper nor in the archive."""
    try:
        return batches.load(site.session, bid)
    except Missing:
        if (inventory := site.archive()) is not None:
            from pipeline.inventory.archive import find_batch

            if archived := find_batch(inventory, bid):
                return archived
        raise


def archived_jobs(site: Site, bid: str) -> Iterator[ArchivedJob]:
    """The archived jobs of a batch, which may itself still be in ZooKeeper; none without an archive."""
    if (inventory := site.archive()) is not None:
        from pipeline.inventory.archive import jobs_of

        yield from jobs_of(inventory, bid)


def archived_report(site: Site, bid: str) -> BatchReport | None:
    """The last report of an archived batch; a report may have many megabytes."""
    if (inventory := site.archive()) is None:
        return None
    from pipeline.inventory.archive import find_report

    text = find_report(inventory, bid)
    return None if text is None else batch_report.BatchReport.model_validate_json(text)
