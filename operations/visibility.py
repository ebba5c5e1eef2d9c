"""What a principal may see: what it may not see is Missing, in the words for what does not exist."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from operations.archive import Archive, load_batch, load_job
from operations.facts import Explanation
from operations.objects import known_object
from operations.why import kind_of
from pipeline.errors import UsageRefused
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.principal import Forbidden, Principal, Role
from pipeline.records import Batch, Job
from zkstate.errors import Missing
from zkstate.session import Session


def visible_batch(
    session: Session, principal: Principal, bid: str, archive: Archive
) -> Batch | ArchivedBatch:
    """Missing if there is no such batch for this principal."""
    try:
        batch = load_batch(session, bid, archive)
    except Missing as error:
        raise Missing(f"there is no batch {bid}").with_remedies(*error.remedies) from error
    if in_sight(principal, batch.submission.profile_name, batch.submission.owner):
        return batch
    raise Missing(f"there is no batch {bid}")


def visible_job(session: Session, principal: Principal, jid: str, archive: Archive) -> Job | ArchivedJob:
    """Missing if there is no such job for this principal."""
    try:
        job = load_job(session, jid, archive)
    except Missing as error:
        raise Missing(f"there is no job {jid}").with_remedies(*error.remedies) from error
    collection = job.profile_name if isinstance(job, Job) else job.profile
    owner = ""
    if principal.role is Role.DEPOSITOR:
        with suppress(Missing):  # then nobody owns it
            owner = load_batch(session, job.bid, archive).submission.owner
    if in_sight(principal, collection, owner):
        return job
    raise Missing(f"there is no job {jid}")


def check_jobs_visible(
    session: Session, principal: Principal, versions: Iterable[tuple[str, int]], archive: Archive
) -> None:
    """Missing unless the principal may see all these jobs; nothing is read for one who may see any job."""
    if principal.collections is None and principal.role is not Role.DEPOSITOR:
        return
    for jid, _ in versions:
        visible_job(session, principal, jid, archive)


def in_sight(principal: Principal, collection: str, owner: str) -> bool:
    """True if the principal may see what belongs to this collection and was submitted by this owner."""
    if principal.collections is not None and collection not in principal.collections:
        return False
    return principal.role is not Role.DEPOSITOR or owner == principal.identity


def check_object_visible(
    session: Session, principal: Principal, known: InventoryObject, archive: Archive
) -> None:
    """Missing unless the principal may see the batch of every version of the object."""
    collections = {version.profile for version in known.versions}
    if principal.collections is not None and not collections <= principal.collections:
        raise Missing(f"there is no object {known.ark}")
    if principal.role is not Role.DEPOSITOR:
        return
    try:
        for bid in {version.bid for version in known.versions}:
            visible_batch(session, principal, bid, archive)
    except Missing as error:
        raise Missing(f"there is no object {known.ark}") from error


def visible_object(
    session: Session,
    principal: Principal,
    inventory: SqlInventory,
    ark: str,
    archive: Archive,
    *,
    hints: bool = False,
) -> InventoryObject:
    """The object; Missing unless the principal may see it.

    `hints`: UsageRefused for an unknown ARK may name similar ones, also those that the principal may not see.
    """
    try:
        known = known_object(inventory, ark)
    except UsageRefused as error:
        if hints:
            raise
        raise Missing(f"there is no object {ark}") from error
    check_object_visible(session, principal, known, archive)
    return known


def object_as_seen_by(principal: Principal, known: InventoryObject) -> InventoryObject:
    """The object without its places in the repository's storage, for those who do not work there."""
    if principal.role is not Role.DEPOSITOR:
        return known
    return replace(known, versions=tuple(replace(version, storage_url="") for version in known.versions))


def check_visible(session: Session, principal: Principal, name: str, archive: Archive) -> None:
    """Missing unless the principal may see this job or batch."""
    if kind_of(name) == "batch":
        visible_batch(session, principal, name, archive)
    else:
        visible_job(session, principal, name, archive)


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


def as_seen_by(principal: Principal, explanation: Explanation) -> Explanation:
    """The explanation without the jobs of others, for principals that do not see everything."""
    if sees_fleet(principal):
        return explanation
    changes: dict[str, object] = {"users": {}}
    if explanation.waits_for.startswith(("jid", "bid")):
        changes["waits_for"] = ""
    if explanation.first is not None:
        changes["first"] = as_seen_by(principal, explanation.first)
    return explanation.model_copy(update=changes)
