"""An object in the inventory, with the custody of its files, its PREMIS, and its export as a BagIt bag."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from operations.objects import proofs
from operations.run import Stopped
from operations.site import Site
from operations.visibility import sees_fleet, visible_batch, visible_job
from pipeline import codes
from pipeline.description.premis import ObjectEvent
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.fixity import OnRead
from pipeline.inventory.base import DamagedFile, InventoryObject, InventoryVersion, PreservationEvent
from pipeline.inventory.description import DISSEMINATION, FAIL, PASS
from pipeline.inventory.sql import SqlInventory
from pipeline.names import NotAnArk, spellings
from pipeline.outcome import DamagedObject, StepFailed, damaged
from pipeline.preservation import premis_record
from pipeline.preservation.custody import WHOLE, Custody, Reading, prove
from pipeline.preservation.export import ExportedBag, export_bag
from pipeline.preservation.premis_record import events_of
from pipeline.principal import Principal, Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from tasks.logs import log
from zkstate.errors import Missing

_JOB = re.compile("jid[0-9]+")


@dataclass(frozen=True, kw_only=True)
class ObjectView(InventoryObject):
    custody: Custody
    timeline: tuple[ObjectEvent, ...]
    """All events after processing, oldest first; `events` are the latest of those that are rows."""


@dataclass(frozen=True)
class ShownObject:
    """An `ObjectView` as the API has it."""

    object: InventoryObject
    custody: Custody
    timeline: tuple[ObjectEvent, ...]


Paths = Collection[str] | None
"""Only these files of an object; None: all."""


def known_object(inventory: SqlInventory, name: str, paths: Paths = None) -> InventoryObject:
    """The object of this ARK, also without its prefix, or of this local id.

    UsageRefused, with a hint, if there is none, or more than one.
    """
    named = objects_named(inventory, name, paths)
    if not named:
        raise _unknown(name)
    return _only(name, named)


def objects_named(inventory: SqlInventory, name: str, paths: Paths = None) -> tuple[InventoryObject, ...]:
    """The object with this ARK, or the objects with this local id and those whose ARK ends so."""
    try:
        arks, most = spellings(name), 1
    except NotAnArk:
        # both: the local id of one object may be the end of another's ARK
        arks = tuple(dict.fromkeys((*inventory.objects_named(name), *inventory.arks_identified(name))))
        most = len(arks)
    known = (inventory.describe_object(ark, paths) for ark in arks)
    return tuple(islice(filter(None, known), most))


def _only(name: str, named: Sequence[InventoryObject]) -> InventoryObject:
    if len(named) > 1:
        arks = " or ".join(known.ark for known in named)
        raise UsageRefused(f"'{name}' names more than one object: give the ARK, {arks}")
    return named[0]


def _unknown(name: str) -> UsageRefused:
    if _JOB.fullmatch(name):
        message = f"{name} is the id of a job, not of an object: the status of the job shows the object's ARK"
        return UsageRefused(message).with_remedies(Remedy(Action.SHOW_STATUS, name))
    return UsageRefused(
        f"the inventory has no object {name}: an object is entered when its first job is recorded. Write its "
        "ARK as in a report, ark:/99999/fk4abc or fk4abc, or its local id"
    ).with_remedies(Remedy(Action.SHOW_OBJECTS))


def visible_object(site: Site, principal: Principal, name: str, paths: Paths = None) -> InventoryObject:
    """The object; Missing unless it exists and the principal may see it.

    For those who see the fleet, the message says how objects are named.
    """
    inventory = site.archive()
    if inventory is None:
        raise Missing("the inventory is empty: no object has been stored yet")
    named = [known for known in objects_named(inventory, name, paths) if _is_visible(site, principal, known)]
    if named:
        return _only(name, named)
    if not sees_fleet(principal) and not _JOB.fullmatch(name):
        raise Missing(f"there is no object {name}")
    error = _unknown(name)
    raise Missing(str(error)).with_remedies(*error.remedies)


def _is_visible(site: Site, principal: Principal, known: InventoryObject) -> bool:
    try:
        check_visible(site, principal, known)
    except Missing:
        return False
    return True


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
    """The object; for depositors, without its paths in the repository's storage."""
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


def timeline(
    inventory: SqlInventory,
    known: InventoryObject,
    *newest: PreservationEvent,
    before: datetime | None = None,
) -> tuple[ObjectEvent, ...]:
    """All events after processing; `newest`: those that the inventory does not have yet.

    `before`: without events from then on, except those of damage.
    """
    entered = inventory.events_of(known.ark)
    if before:
        entered = tuple(event for event in entered if event.at < before or event.outcome == FAIL)
    return events_of(known, (*entered, *newest))


def object_view(
    known: InventoryObject,
    events: tuple[ObjectEvent, ...],
    numbers: Collection[int],
    storage: Storage | None = None,
    reading: Reading = WHOLE,
) -> ObjectView:
    """The object with its custody and `timeline`; without `storage` only the records are compared."""
    custody = prove(known, numbers, storage, reading)
    return ObjectView(**vars(known), custody=custody, timeline=events)


def object_of_job(site: Site, principal: Principal, jid: str) -> InventoryObject:
    """The object whose version the job stored; Missing until the version is recorded."""
    visible_job(site, principal, jid)
    inventory = site.archive()
    page = inventory.files_of_job(jid, 1) if inventory else None
    known = inventory.describe_object(page.ark) if inventory and page else None
    if inventory is None or known is None:
        raise Missing(f"{jid} has stored nothing: its PREMIS exists once its version is in the inventory")
    check_visible(site, principal, known)
    return known


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
    """A folder name: `ark_99999_fk4abc-v2`."""
    return f"{plain_name(known.ark)}-v{number}"


def plain_name(ark: str) -> str:
    """The ARK as a file or folder name: `ark_99999_fk4abc`."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in ark)


def until_stopped(on_read: OnRead, stopped: Callable[[], bool], folder: Path) -> OnRead:
    """`on_read`, and `export-interrupted` once `stopped` returns true."""

    def count(size: int) -> None:
        on_read(size)
        if stopped():
            raise Stopped(f"interrupted: there is no bag in {folder}", code=codes.EXPORT_INTERRUPTED)

    return count


def export(
    request: ExportRequest,
    settings: Settings,
    inventory: SqlInventory,
    storage: Storage,
    on_read: OnRead,
    stopped: Callable[[], bool],
) -> Export:
    """Write the bag and enter the export as an event.

    Errors as `export_bag`, and `export-interrupted` once `stopped` returns true. A refused export is entered,
    too, and has the object checked. A crash after the bag has its name leaves a bag without an event.
    """

    known, folder = request.known, request.folder
    event = dissemination(known.ark, request.number, request.by)

    def not_asked(number: int) -> str:
        return _problem_of(lambda: proofs.ask_after_damage(settings, inventory, known, number))

    def have_checked(version: InventoryVersion, damage: DamagedObject) -> None:
        log().error(
            "damage in storage", ark=known.ark, first=damage.message, not_asked=not_asked(version.number)
        )

    def premis() -> Iterator[bytes]:
        nonlocal event
        event = replace(event, at=now())
        return premis_record.pieces(known, timeline(inventory, known, event), storage, have_checked)

    try:
        bag = export_bag(
            known, request.number, storage, folder, premis, until_stopped(on_read, stopped, folder)
        )
    except DamagedObject as damage:
        refused = refused_by(replace(event, at=now()), damage)
        message = damage.message
        if problem := _problem_of(lambda: inventory.enter_export(refused)):
            message += f"; the inventory has no event of this: {problem}"
        if problem := not_asked(request.number):
            message += f"; no worker is asked to check the object: {problem}"
        raise damaged(message) from damage
    return Export(**vars(bag), not_entered=_problem_of(lambda: inventory.enter_export(event)))


def dissemination(ark: str, number: int, by: str, what: str = "") -> PreservationEvent:
    """The event of giving out `what` of the version, now; empty: a copy of all of it, whose files agree."""
    return PreservationEvent(
        id=0,
        ark=ark,
        type=DISSEMINATION,
        at=now(),
        agent=f"arkline {by}",
        outcome=PASS,
        damaged=0,
        files=(),
        reported=None,
        version=number,
        note=what,
    )


def refused_by(event: PreservationEvent, damage: DamagedObject, path: str = "") -> PreservationEvent:
    """The event of giving out the same, which met the damage; `path`: of the damaged file, if it is known."""
    file = DamagedFile(event.version or 0, path, damage.message, "")
    return replace(event, outcome=FAIL, damaged=1, files=(file,))


def _problem_of(enter: Callable[[], object]) -> str:
    """Why the inventory rejected what is entered, or '': an export does not depend on it."""
    try:
        enter()
    except StepFailed as failure:
        return failure.message
    return ""
