"""The report of a batch in the record, composed for the mail and for the archive alike."""

from collections.abc import Iterable

from pipeline.inventory.archive import find_jobs
from pipeline.inventory.sql import SqlInventory
from pipeline.notify.report.compose import BatchReport, JobOutcome, compose_report
from pipeline.records import Batch, Job
from pipeline.states import Bucket
from zkstate import batches
from zkstate.session import Session


def compose(
    session: Session, batch: Batch, members: Iterable[Job | JobOutcome], inventory: SqlInventory
) -> BatchReport:
    """The report of the jobs that exist, and of those that were deleted, with their tombstones."""
    gone = batches.jobs_in(session, batch.bid, Bucket.DELETED)
    tombstones = {job.jid: job for job in find_jobs(inventory, gone)}
    return compose_report(batch, members, {jid: tombstones.get(jid) for jid in gone})
