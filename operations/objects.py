"""An object in the inventory, with the custody of its files."""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.inventory import events as inventory_events
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.names import NotAnArk, canonical_ark, spellings
from pipeline.preservation import premis_record
from pipeline.preservation.custody import Custody
from pipeline.preservation.events import ObjectEvent, events_of
from pipeline.preservation.proof import Reading, prove
from pipeline.storage.base import Storage


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
    return events_of(known, inventory_events.of_object(inventory, known.ark))


def object_view(
    known: InventoryObject,
    events: tuple[ObjectEvent, ...],
    numbers: Collection[int],
    storage: Storage | None,
    on_read: Callable[[int], None],
    stopped: Callable[[], bool],
) -> ObjectView:
    """The object, its custody and its `timeline`; `on_read` and `stopped` as in `Reading`."""
    custody = prove(known, numbers, storage, Reading(on_read, stopped))
    return ObjectView(**vars(known), custody=custody, timeline=events)


def write_premis(
    known: InventoryObject, events: tuple[ObjectEvent, ...], storage: Storage, file: Path
) -> None:
    """Write the PREMIS document of the object; a file is complete or absent. Errors as `premis_record`,
    and UsageRefused if the file cannot be written.
    """
    # a pipe, or a device such as /dev/stdout, is written to: to replace it would take it from everybody
    special = file.exists() and (file.is_symlink() or not file.is_file())
    draft = file if special else file.with_name(f".{file.name}.partial-{secrets.token_hex(4)}")
    try:
        with draft.open("wb" if special else "xb") as out:
            for piece in premis_record.pieces(known, events, storage):
                out.write(piece)
        if not special:
            draft.replace(file)
    except OSError as error:
        raise UsageRefused(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        if not special:
            draft.unlink(missing_ok=True)
