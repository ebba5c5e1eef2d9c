"""Hands an object out again, as a verified BagIt bag in a folder of this machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from operations.objects.objects import known_object, versions_to_prove
from pipeline.errors import ArklineError, ErrorKind
from pipeline.fixity import OnRead
from pipeline.inventory.base import InventoryObject, PreservationEvent
from pipeline.inventory.description import DISSEMINATION, FAIL, PASS
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import DamagedObject, StepFailed, damaged
from pipeline.preservation import premis_record
from pipeline.preservation.events import events_of
from pipeline.preservation.export import ExportedBag, export_bag
from pipeline.records import now
from pipeline.storage.base import Storage


class ExportInterrupted(ArklineError):
    error_kind = ErrorKind.INTERRUPTED


@dataclass(frozen=True)
class ExportRequest:
    known: InventoryObject
    number: int
    """The version."""
    folder: Path
    """The new folder of the bag."""
    by: str
    """The person, for the event."""


@dataclass(frozen=True)
class Export(ExportedBag):
    not_entered: str
    """Why the inventory has no event of this export; empty if it has."""


def object_to_export(inventory: SqlInventory, name: str, number: int | None) -> tuple[InventoryObject, int]:
    """The object, and the version to export: the current one, or `number`."""
    known = known_object(inventory, name)
    (chosen,) = versions_to_prove(known, number, every=False)
    return known, chosen


def bag_name(known: InventoryObject, number: int) -> str:
    """A name for the folder: `ark_99999_fk4abc-v2`."""
    return f"{plain_name(known.ark)}-v{number}"


def plain_name(ark: str) -> str:
    """For a file or a folder: `ark_99999_fk4abc`."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in ark)


def export(
    request: ExportRequest,
    inventory: SqlInventory,
    storage: Storage,
    on_read: OnRead,
    stopped: Callable[[], bool],
) -> Export:
    """Write the bag and enter the export as an event; errors as `export_bag`, and ExportInterrupted once
    `stopped` is true.

    A refused export is entered as well. A crash after the bag has its name leaves a bag without an event.
    """

    known, folder = request.known, request.folder

    def count(size: int) -> None:
        on_read(size)
        if stopped():
            raise ExportInterrupted(f"interrupted: there is no bag in {folder}")

    event = PreservationEvent(
        id=0,
        ark=known.ark,
        type=DISSEMINATION,
        at=now(),
        agent=f"arkline {request.by}",
        outcome=PASS,
        damaged=0,
        files=(),
        reported=None,
        version=request.number,
    )

    def premis() -> Iterator[bytes]:
        nonlocal event
        event = replace(event, at=now())
        entered = (*inventory.events_of(known.ark), event)
        return premis_record.pieces(known, events_of(known, entered), storage)

    try:
        bag = export_bag(known, request.number, storage, folder, premis, count)
    except DamagedObject as damage:
        refused = replace(event, at=now(), outcome=FAIL, damaged=1, note=damage.message)
        if problem := _enter(inventory, refused):
            raise damaged(f"{damage.message}; the inventory has no event of this: {problem}") from damage
        raise
    return Export(**vars(bag), not_entered=_enter(inventory, event))


def _enter(inventory: SqlInventory, event: PreservationEvent) -> str:
    """Why the inventory did not take the event; empty if it did. An export does not depend on it."""
    try:
        inventory.enter_export(event)
    except StepFailed as failure:
        return failure.message
    return ""
