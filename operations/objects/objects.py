"""An object in the inventory, with the custody of its files."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from operations.site import Site
from operations.visibility import sees_fleet, visible_batch
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.names import NotAnArk, canonical_ark, spellings
from pipeline.preservation.custody import Custody
from pipeline.preservation.events import ObjectEvent, events_of
from pipeline.preservation.proof import Reading, prove
from pipeline.principal import Principal, Role
from pipeline.storage.base import Storage
from zkstate.errors import Missing


@dataclass(frozen=True)
class ObjectView(InventoryObject):
    custody: Custody
    timeline: tuple[ObjectEvent, ...]
    """All events after processing, oldest first; `events` are the latest of those that are rows."""


def known_object(inventory: SqlInventory, name: str) -> InventoryObject:
    """The object of this ARK; UsageRefused, with a hint, if there is none."""
    try:
        arks = spellings(name)
    except NotAnArk:
        arks = (name,)
    for ark in arks:
        known = inventory.describe_object(ark)
        if known is not None:
            return known
    named = inventory.objects_named(name)
    if named:
        raise UsageRefused(f"'{name}' is a local id: give the ARK of its object, {' or '.join(named)}")
    if not name.lower().startswith("ark:"):
        canonical_ark(name)
    raise UsageRefused(
        f"the inventory has no object {arks[0]}: an object is entered when its first job is recorded. "
        "Write the ARK "
        "as in a report, ark:/99999/fk4abc"
    ).with_remedies(Remedy(Action.SHOW_JOBS))


def visible_object(site: Site, principal: Principal, ark: str) -> InventoryObject:
    """Missing unless there is such an object for the principal.

    For those who see the fleet, its message names similar ones.
    """
    inventory = site.archive()
    if inventory is None:
        raise Missing("the inventory is empty: no object has been stored yet")
    try:
        known = known_object(inventory, ark)
    except UsageRefused as error:
        if sees_fleet(principal):
            raise Missing(str(error)).with_remedies(*error.remedies) from error
        raise Missing(f"there is no object {ark}") from error
    check_visible(site, principal, known)
    return known


def check_visible(site: Site, principal: Principal, known: InventoryObject) -> None:
    """Missing unless the principal may see the batch of every version of the object."""
    collections = {version.profile for version in known.versions}
    if principal.collections is not None and not collections <= principal.collections:
        raise Missing(f"there is no object {known.ark}")
    if principal.role is not Role.DEPOSITOR:
        return
    try:
        for bid in {version.bid for version in known.versions}:
            visible_batch(site, principal, bid)
    except Missing as error:
        raise Missing(f"there is no object {known.ark}") from error


def as_seen_by(principal: Principal, known: InventoryObject) -> InventoryObject:
    """The object without its places in the repository's storage, for those who do not work there."""
    if principal.role is not Role.DEPOSITOR:
        return known
    return replace(known, versions=tuple(replace(version, storage_url="") for version in known.versions))


def versions_to_prove(known: InventoryObject, number: int | None, *, every: bool) -> tuple[int, ...]:
    """The requested version numbers; by default the current version."""
    numbers = tuple(version.number for version in known.versions)
    if every:
        return numbers
    if number is None:
        return numbers[-1:]
    if number not in numbers:
        recorded = ", ".join(map(str, numbers))
        raise UsageRefused(f"the inventory has no version {number} of {known.ark}; it has {recorded}")
    return (number,)


def timeline(inventory: SqlInventory, known: InventoryObject) -> tuple[ObjectEvent, ...]:
    return events_of(known, inventory.events_of(known.ark))


def object_view(
    known: InventoryObject,
    events: tuple[ObjectEvent, ...],
    numbers: Collection[int],
    storage: Storage | None = None,
    reading: Reading = Reading(lambda _: None, lambda: False),  # noqa: B008 - frozen
) -> ObjectView:
    """The object, its custody and its `timeline`; without `storage` only the records are compared."""
    custody = prove(known, numbers, storage, reading)
    return ObjectView(**vars(known), custody=custody, timeline=events)
