"""What a principal may see: what it may not see is Missing, in the words for what does not exist.

An operation loads a job or a batch here, once, and passes it on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from operations import archive
from pipeline.errors import UsageRefused
from pipeline.principal import Forbidden, Principal, Role
from pipeline.records import Batch, Job
from zkstate.errors import Missing

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob


def kind_of(name: str) -> str:
    """`job` or `batch`, by the form of its id."""
    for prefix, kind in (("jid", "job"), ("bid", "batch")):
        if name.startswith(prefix):
            return kind
    raise UsageRefused(f"'{name}' is neither a batch (bid0000000001) nor a job (jid0000000001)")


def visible(site: Site, principal: Principal, name: str) -> Job | Batch | ArchivedJob | ArchivedBatch:
    """The job or batch; Missing if there is none of this name for this principal."""
    if kind_of(name) == "batch":
        return visible_batch(site, principal, name)
    return visible_job(site, principal, name)


def visible_batch(site: Site, principal: Principal, bid: str) -> Batch | ArchivedBatch:
    """Missing if there is no such batch for this principal."""
    try:
        batch = archive.load_batch(site, bid)
    except Missing as error:
        if sees_fleet(principal):  # who learns which znode a damaged batch lacks
            raise
        raise Missing(f"there is no batch {bid}").with_remedies(*error.remedies) from error
    if in_sight(principal, batch.submission.profile_name, batch.submission.owner):
        return batch
    raise Missing(f"there is no batch {bid}")


def visible_job(site: Site, principal: Principal, jid: str) -> Job | ArchivedJob:
    """Missing if there is no such job for this principal."""
    try:
        job = archive.load_job(site, jid)
    except Missing as error:
        if sees_fleet(principal):
            raise
        raise Missing(f"there is no job {jid}").with_remedies(*error.remedies) from error
    collection = job.profile_name if isinstance(job, Job) else job.profile
    owner = ""
    if principal.role is Role.DEPOSITOR:
        with suppress(Missing):  # then nobody owns it
            owner = archive.load_batch(site, job.bid).submission.owner
    if in_sight(principal, collection, owner):
        return job
    raise Missing(f"there is no job {jid}")


def recorded(site: Site, principal: Principal, name: str) -> Job | Batch:
    """The job or batch in ZooKeeper, on which verbs act; Missing, too, once it has left."""
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
    """True if the principal may see what belongs to this collection and was submitted by this owner."""
    if principal.collections is not None and collection not in principal.collections:
        return False
    return principal.role is not Role.DEPOSITOR or owner == principal.identity


def sees_fleet(principal: Principal) -> bool:
    """True for those who see every collection, and so workers, servers and storage."""
    return principal.role is not Role.DEPOSITOR and principal.collections is None


def require_fleet(principal: Principal, action: str) -> None:
    """Forbidden for depositors, and for those who have only some collections."""
    if principal.role is Role.DEPOSITOR:
        raise Forbidden(
            f"{principal.name} must not {action}: this needs the role {Role.VIEWER} without limits to "
            f"collections, and {principal.name} has the role {principal.role}"
        )
    principal.require(Role.VIEWER, action)
