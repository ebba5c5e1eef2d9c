"""A batch's report, composed of what is true now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from operations.archive import archived_report
from operations.jobs.batch_view import BatchView
from operations.site import Site
from operations.visibility import visible_batch
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.notify.batch_report import (
    BatchReport,
    ReportedJob,
    ReportedJobs,
    compose_reported,
    reported_job,
)
from pipeline.principal import Principal
from pipeline.records import Batch, Job
from zkstate.queue import listings
from zkstate.record import batches, jobs

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedJob


def report(site: Site, principal: Principal, bid: str) -> BatchReport:
    """The state of every job of the batch; once the batch has left ZooKeeper, its archived report."""
    batch = visible_batch(site, principal, bid)
    if isinstance(batch, Batch):
        return compose(site, batch, load_jobs(site, bid))
    archived = archived_report(site, bid)
    if archived is None:
        refused = UsageRefused(f"{bid} was archived without a report")
        raise refused.with_remedies(Remedy(Action.SHOW_STATUS, bid))
    return archived


def with_objects_of(view: BatchView, reported: BatchReport) -> BatchView:
    """The view with the objects of its report."""
    sections = reported.sections
    objects = sorted((job for _, jobs in sections for job in jobs), key=lambda job: job.jid)
    return view.model_copy(update={"objects": tuple(objects)})


def sent_texts(site: Site, principal: Principal, bid: str) -> tuple[str, ...]:
    """The reports exactly as they were mailed, once the batch has left ZooKeeper; none before that."""
    if isinstance(visible_batch(site, principal, bid), Batch) or (inventory := site.archive()) is None:
        return ()
    from pipeline.inventory.archive import sent_reports

    return tuple(sent.text for sent in sent_reports(inventory, bid))


def load_jobs(site: Site, bid: str) -> Iterator[Job]:
    """The jobs that a batch in ZooKeeper still has, read as far as the caller iterates."""
    return jobs.load_present(site.session, listings.of_batch(site.session, bid))


def compose(
    site: Site,
    batch: Batch,
    members: Iterable[Job],
    line: Callable[[Job], ReportedJob] = reported_job,
) -> BatchReport:
    """The report of a batch in ZooKeeper with these jobs; of deleted jobs, the tombstones say why.

    Of each job a line is kept: a batch may have more jobs than fit into memory.
    """
    lines = ReportedJobs.of(map(line, members))
    present = {line.jid for line in lines}
    gone = [jid for jid in batches.all_jobs(site.session, batch.bid) if jid not in present]
    return compose_reported(batch, lines, _tombstones(site, gone))


def _tombstones(site: Site, gone: Sequence[str]) -> dict[str, ArchivedJob | None]:
    tombstones: dict[str, ArchivedJob | None] = dict.fromkeys(gone)
    if gone and (inventory := site.archive()) is not None:
        from pipeline.inventory.archive import find_jobs  # loads SQLAlchemy

        tombstones |= {job.jid: job for job in find_jobs(inventory, gone)}
    return tombstones
