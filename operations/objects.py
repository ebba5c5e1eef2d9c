"""An object as the inventory describes it, with the custody of its files."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from operations.custody import Custody
from operations.custody_check import prove
from pipeline.errors import UsageRefused
from pipeline.identifiers import noid
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.storage.base import Storage


@dataclass(frozen=True)
class ObjectView(InventoryObject):
    custody: Custody


def known_object(inventory: SqlInventory, name: str) -> InventoryObject:
    """The object of this ARK; UsageRefused, with what may have been meant, if there is none."""
    try:
        ark = str(noid.parse_ark(name))
    except noid.NotAnArk:
        ark = name
    found = inventory.describe_object(ark)
    if found is not None:
        return found
    named = inventory.objects_named(name)
    if named:
        raise UsageRefused(f"'{name}' is a local id: ask for the object that it names, {' or '.join(named)}")
    if not name.lower().startswith("ark:"):
        noid.parse_ark(name)
    raise UsageRefused(
        f"the inventory knows no object {ark}: it is there once the first job with it is recorded "
        "(`arkline jobs` lists jobs); an ARK is written as in a report, ark:/99999/fk4abc"
    )


def versions_to_prove(found: InventoryObject, number: int | None, *, every: bool) -> tuple[int, ...]:
    """The numbers asked for; without a wish, that of the current version."""
    numbers = tuple(version.number for version in found.versions)
    if every:
        return numbers
    if number is None:
        return numbers[-1:]
    if number not in numbers:
        there = ", ".join(map(str, numbers))
        raise UsageRefused(f"the inventory has no version {number} of {found.ark}; it has {there}")
    return (number,)


def object_view(
    found: InventoryObject, numbers: Collection[int], storage: Storage | None, seen: Callable[[int], None]
) -> ObjectView:
    return ObjectView(**vars(found), custody=prove(found, numbers, storage, seen))
