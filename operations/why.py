"""Why a job or a batch is where it is, as facts: what it waits for, who has it, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.archive import no_archive
from operations.batch_view import batch_view
from operations.facts import Explanation, Reason
from operations.fleet import Fleet
from operations.job_view import job_view
from operations.why_batch import why_batch
from operations.why_job import why_job
from pipeline.errors import UsageRefused
from pipeline.remedies import Action, Remedy
from pipeline.settings import Settings
from zkstate import batches, jobs
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

if TYPE_CHECKING:
    from operations.archive import Archive


def kind_of(name: str) -> str:
    """`job` or `batch`, by the form of its id."""
    for prefix, kind in (("jid", "job"), ("bid", "batch")):
        if name.startswith(prefix):
            return kind
    raise UsageRefused(f"'{name}' is neither a batch (bid0000000001) nor a job (jid0000000001)")


def why(session: Session, settings: Settings, name: str, archive: Archive = no_archive) -> Explanation:
    """Missing if neither ZooKeeper nor the archive knows it."""
    fleet = Fleet(session, settings)
    kind = kind_of(name)
    try:
        if kind == "job":
            return why_job(session, fleet, jobs.load(session, name))
        return why_batch(session, fleet, batches.load(session, name))
    except Corrupt as damage:
        remedies = (Remedy(Action.AUDIT),)
        return Explanation(
            id=name, kind=kind, reason=Reason.RECORD_DAMAGED, message=str(damage), remedies=remedies
        )
    except Missing:
        return _archived(session, name, kind, archive)


def _archived(session: Session, name: str, kind: str, archive: Archive) -> Explanation:
    """A job or batch that left ZooKeeper; `holder` removed it at `holder_since`."""
    job = job_view(session, name, archive) if kind == "job" else None
    batch = batch_view(session, name, archive) if job is None else None
    view = job or batch
    assert view is not None
    gone = view.archived
    return Explanation(
        id=name,
        kind=kind,
        profile=view.profile,
        state=str(job.state if job else batch.status if batch else ""),
        since=view.since,
        reason=Reason.ARCHIVED,
        holder=gone.by if gone else "",
        holder_since=gone.at if gone else None,
        hold_reason=gone.reason if gone else "",
    )
