"""A batch's report, composed of what is true now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from operations.archive import Archive, archived_report, load_batch, no_archive
from operations.batch_view import LISTED, BatchView
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.notify.report.compose import (
    BatchReport,
    ReportedJob,
    ReportedJobs,
    compose_reported,
    reported_job,
)
from pipeline.records import Batch, Job
from zkstate import batches, jobs, listings
from zkstate.session import Session

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedJob


def report(session: Session, bid: str, archive: Archive = no_archive) -> BatchReport:
    """The state of every job of the batch; once the batch has left ZooKeeper, its archived report."""
    batch = load_batch(session, bid, archive)
    if isinstance(batch, Batch):
        return compose(session, batch, load_jobs(session, bid), archive)
    archived = archived_report(archive, bid)
    if archived is None:
        refused = UsageRefused(f"{bid} was archived without a report")
        raise refused.with_remedies(Remedy(Action.SHOW_STATUS, bid))
    return archived


def with_objects(session: Session, view: BatchView, archive: Archive) -> BatchView:
    """The view of a batch that has ended, with its objects and their ARKs unless there are very many."""
    if (view.total or 0) > LISTED:
        return view
    return with_objects_of(view, report(session, view.bid, archive))


def with_objects_of(view: BatchView, reported: BatchReport) -> BatchView:
    """The view with the objects of its report."""
    sections = reported.sections
    objects = sorted((job for _, jobs in sections for job in jobs), key=lambda job: job.jid)
    return view.model_copy(update={"objects": tuple(objects)})


def sent_texts(session: Session, bid: str, archive: Archive) -> tuple[str, ...]:
    """The reports exactly as they were mailed, once the batch has left ZooKeeper; none before that."""
    if isinstance(load_batch(session, bid, archive), Batch) or (inventory := archive()) is None:
        return ()
    from pipeline.inventory.archive import sent_reports

    return tuple(sent.text for sent in sent_reports(inventory, bid))


def load_jobs(session: Session, bid: str) -> Iterator[Job]:
    """The jobs that a batch in ZooKeeper still has, read as far as the caller iterates."""
    return jobs.load_present(session, listings.of_batch(session, bid))


def compose(
    session: Session,
    batch: Batch,
    members: Iterable[Job],
    archive: Archive,
    line: Callable[[Job], ReportedJob] = reported_job,
) -> BatchReport:
    """The report of a batch in ZooKeeper with these jobs; of deleted jobs, the tombstones say why.

    Of each job a line is kept: a batch may have more jobs than fit into memory.
    """
    lines = ReportedJobs.of(map(line, members))
    present = {line.jid for line in lines}
    gone = [jid for jid in batches.all_jobs(session, batch.bid) if jid not in present]
    return compose_reported(batch, lines, _tombstones(archive, gone))


def _tombstones(archive: Archive, gone: Sequence[str]) -> dict[str, ArchivedJob | None]:
    tombstones: dict[str, ArchivedJob | None] = dict.fromkeys(gone)
    if gone and (inventory := archive()) is not None:
        from pipeline.inventory.archive import find_jobs  # loads SQLAlchemy

        tombstones |= {job.jid: job for job in find_jobs(inventory, gone)}
    return tombstones
