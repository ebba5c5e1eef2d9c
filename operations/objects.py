"""An object in the inventory, with the custody of its files."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from operations.custody import Custody
from operations.custody_check import prove
from pipeline.errors import UsageRefused
from pipeline.identifiers import noid
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.remedies import Action, Remedy
from pipeline.storage.base import Storage


@dataclass(frozen=True)
class ObjectView(InventoryObject):
    custody: Custody


def known_object(inventory: SqlInventory, name: str) -> InventoryObject:
    """The object of this ARK; UsageRefused, with a hint, if there is none."""
    try:
        ark = str(noid.parse_ark(name))
    except noid.NotAnArk:
        ark = name
    known = inventory.describe_object(ark)
    if known is not None:
        return known
    named = inventory.objects_named(name)
    if named:
        raise UsageRefused(f"'{name}' is a local id: give the ARK of its object, {' or '.join(named)}")
    if not name.lower().startswith("ark:"):
        noid.parse_ark(name)
    raise UsageRefused(
        f"the inventory has no object {ark}: an object is entered when its first job is recorded. "
        "Write the ARK "
        "as in a report, ark:/99999/fk4abc"
    ).with_remedies(Remedy(Action.SHOW_JOBS))


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


def object_view(
    known: InventoryObject,
    numbers: Collection[int],
    storage: Storage | None,
    on_read: Callable[[int], None],
    stopped: Callable[[], bool],
) -> ObjectView:
    """The object and its custody; `on_read` and `stopped` as in `prove`."""
    return ObjectView(**vars(known), custody=prove(known, numbers, storage, on_read, stopped))
