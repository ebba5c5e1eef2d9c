"""Loads jobs and batches, wherever they are, for principals that may see them.

A job or a batch is in ZooKeeper or, once it has left, in the SQL archive, which is opened only then because
opening a database is slow. What a principal may not see is Missing, with the same message as what does not
exist. An operation loads a job or a batch here, once, and passes it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from pipeline.errors import UsageRefused
from pipeline.inventory import archive, sight
from pipeline.names import PLACES
from pipeline.notify.batch_report import BatchReport
from pipeline.principal import Forbidden, Principal, Role
from pipeline.records import Batch, Job, Record
from zkstate.errors import Missing
from zkstate.record import batches, jobs

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob, Disposition


class Gone(Record):
    """Who took it out of ZooKeeper, when and why."""

    by: str
    reason: str
    at: datetime

    @classmethod
    def of(cls, disposition: Disposition) -> Gone:
        return cls(by=disposition.who, reason=disposition.why, at=disposition.at)


def load_job(site: Site, jid: str) -> Job | ArchivedJob:
    """The job; Missing if it is neither in ZooKeeper nor in the archive."""
    _check_name(jid, "job")
    try:
        return jobs.load(site.session, jid)
    except Missing:
        inventory = site.archive()
        if inventory is not None and (archived := archive.find_job(inventory, jid)):
            return archived
        raise


def load_batch(site: Site, bid: str) -> Batch | ArchivedBatch:
    """The batch; Missing if it is neither in ZooKeeper nor in the archive."""
    _check_name(bid, "batch")
    try:
        return batches.load(site.session, bid)
    except Missing:
        inventory = site.archive()
        if inventory is not None and (archived := archive.find_batch(inventory, bid)):
            return archived
        raise


def _check_name(name: str, kind: str) -> None:
    if name in PLACES:
        raise Missing(f"there is no {kind} {name}")


def archived_jobs(site: Site, bid: str, after: str = "") -> Iterator[ArchivedJob]:
    """The archived jobs of a batch, which may itself still be in ZooKeeper; none without an archive."""
    if (inventory := site.archive()) is not None:
        yield from archive.jobs_of(inventory, bid, after)


def archived_report(site: Site, bid: str) -> BatchReport | None:
    """The last report of an archived batch; it may be many megabytes."""
    if (inventory := site.archive()) is None:
        return None
    text = archive.find_report(inventory, bid)
    return None if text is None else BatchReport.model_validate_json(text)


def kind_of(name: str) -> str:
    """`job` or `batch`, from the form of the id."""
    for prefix, kind in (("jid", "job"), ("bid", "batch")):
        if name.startswith(prefix):
            return kind
    raise UsageRefused(f"'{name}' is neither a batch (bid0000000001) nor a job (jid0000000001)")


def visible(site: Site, principal: Principal, name: str) -> Job | Batch | ArchivedJob | ArchivedBatch:
    """The job or batch; Missing if it does not exist for this principal."""
    if kind_of(name) == "batch":
        return visible_batch(site, principal, name)
    return visible_job(site, principal, name)


def visible_batch(site: Site, principal: Principal, bid: str) -> Batch | ArchivedBatch:
    """The batch; Missing if it does not exist for this principal."""
    try:
        batch = load_batch(site, bid)
    except Missing as error:
        if sees_fleet(principal):  # they learn which znode of a damaged batch is missing
            raise
        raise Missing(f"there is no batch {bid}").with_remedies(*error.remedies) from error
    if in_sight(principal, batch.submission.profile_name, batch.submission.owner):
        return batch
    raise Missing(f"there is no batch {bid}")


def visible_job(site: Site, principal: Principal, jid: str) -> Job | ArchivedJob:
    """The job; Missing if it does not exist for this principal."""
    try:
        job = load_job(site, jid)
    except Missing as error:
        if sees_fleet(principal):
            raise
        raise Missing(f"there is no job {jid}").with_remedies(*error.remedies) from error
    collection = job.profile_name if isinstance(job, Job) else job.profile
    owner = ""
    if principal.role is Role.DEPOSITOR:
        with suppress(Missing):  # no owner if the batch is gone
            owner = load_batch(site, job.bid).submission.owner
    if in_sight(principal, collection, owner):
        return job
    raise Missing(f"there is no job {jid}")


def recorded(site: Site, principal: Principal, name: str) -> Job | Batch:
    """The job or batch in ZooKeeper, for verbs; Missing, too, once it has left."""
    if kind_of(name) == "batch":
        return recorded_batch(site, principal, name)
    return recorded_job(site, principal, name)


def recorded_batch(site: Site, principal: Principal, bid: str) -> Batch:
    batch = visible_batch(site, principal, bid)
    if isinstance(batch, Batch):
        return batch
    raise Missing(f"there is no batch {bid} in ZooKeeper: it was archived as {batch.state}")


def recorded_job(site: Site, principal: Principal, jid: str) -> Job:
    job = visible_job(site, principal, jid)
    if isinstance(job, Job):
        return job
    raise Missing(f"there is no job {jid} in ZooKeeper: it was archived as {job.state}")


def in_sight(principal: Principal, collection: str, owner: str) -> bool:
    """Whether the principal may see what this owner submitted to this collection."""
    return principal.sees(collection, owner)


def sight_of(principal: Principal) -> sight.Sight:
    """The same, for searches of objects in the inventory."""
    depositor = principal.identity if principal.role is Role.DEPOSITOR else None
    return sight.Sight(principal.collections, depositor)


def sees_fleet(principal: Principal) -> bool:
    """Whether the principal sees every collection, and therefore workers, servers and storage."""
    return principal.sees_fleet


def require_fleet(principal: Principal, action: str) -> None:
    """Forbidden for depositors, and for principals limited to some collections."""
    if principal.role is Role.DEPOSITOR:
        raise Forbidden(
            f"{principal.name} must not {action}: this needs the role {Role.VIEWER} without limits to "
            f"collections, and {principal.name} has the role {principal.role}"
        )
    principal.require(Role.VIEWER, action)
