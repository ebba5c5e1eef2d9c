"""A batch's report, composed of what is true now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.archive import archived_batch, no_archive
from pipeline.errors import UsageRefused
from pipeline.notify.report.compose import BatchReport, compose_report
from pipeline.records import Batch
from pipeline.remedies import Action, Remedy
from pipeline.states import Bucket
from zkstate import batches, jobs
from zkstate.errors import Missing
from zkstate.session import Session

if TYPE_CHECKING:
    from operations.archive import Archive


def report(session: Session, bid: str, archive: Archive = no_archive) -> BatchReport:
    """The state of every job of the batch; once the batch has left ZooKeeper, its archived report."""
    try:
        batch = batches.load(session, bid)
    except Missing:
        found = archived_batch(archive, bid)
        if found is None:
            raise
        if found[0].report is None:
            refused = UsageRefused(f"{bid} was archived without a report")
            raise refused.with_remedies(Remedy(Action.SHOW_STATUS, bid)) from None
        return BatchReport.model_validate(found[0].report)
    return compose(session, batch, archive)


def compose(session: Session, batch: Batch, archive: Archive) -> BatchReport:
    """The report of a batch in ZooKeeper; of deleted jobs, the tombstones say why."""
    members = []
    deleted = dict.fromkeys(batches.jobs_in(session, batch.bid, Bucket.DELETED), "")
    for jid in batches.all_jobs(session, batch.bid):
        if jid in deleted:
            continue
        try:
            members.append(jobs.load(session, jid))
        except Missing:
            deleted[jid] = ""
    return compose_report(
        batch, members, _with_reasons(deleted, batch.bid, archive), number=max(1, batch.status.reports)
    )


def _with_reasons(deleted: dict[str, str], bid: str, archive: Archive) -> dict[str, str]:
    inventory = archive() if deleted else None
    if inventory is None:
        return deleted
    from pipeline.inventory.archive import jobs_of

    reasons = {job.jid: job.disposition.why for job in jobs_of(inventory, bid)}
    return {jid: reasons.get(jid, "") for jid in deleted}
