"""Files of stored objects for people: who gets them, and the event that every retrieval becomes.

Whoever may see an object may have its files (docs/access.md). The event of a retrieval is entered when it
begins; an `EventWriter` enters it, so that a slow or absent inventory delays no file.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from operations.objects import proofs
from operations.objects.objects import (
    ObjectView,
    as_seen_by,
    dissemination,
    object_view,
    refused_by,
    timeline,
    visible_object,
)
from operations.site import Site
from pipeline import codes
from pipeline.codes import ErrorKind
from pipeline.description.premis import ObjectEvent
from pipeline.errors import ArklineError
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion, PreservationEvent
from pipeline.names import quote_name
from pipeline.outcome import DamagedObject
from pipeline.preservation import premis_record
from pipeline.preservation.custody import WHOLE, Reading
from pipeline.preservation.export import Bag
from pipeline.preservation.reading_out import lost, read
from pipeline.principal import Principal, Role
from pipeline.records import now
from tasks.logs import log
from zkstate.errors import Missing

CURRENT = "current"

CLOSE_POLL = 0.05
"""Seconds between two looks whether everything is entered, when the process ends."""

SERIES = timedelta(hours=1)
"""Requests of one person for one file within this time are one event: programs fetch a file in ranges."""


@dataclass(frozen=True)
class ChosenVersion:
    """A version of an object that the principal may have; `known` may lack files of no interest."""

    known: InventoryObject
    version: InventoryVersion
    by: str


@dataclass(frozen=True)
class ChosenFile(ChosenVersion):
    file: InventoryFile


def chosen_version(
    site: Site, principal: Principal, ark: str, number: str, paths: tuple[str, ...] | None = None
) -> ChosenVersion:
    """The version `number` (or `current`); Missing unless it exists and the principal may see it.

    `embargoed` unless the principal may have its files now.
    """
    known = visible_object(site, principal, ark, paths)
    if problem := withheld(principal, known):
        raise ArklineError(problem, code=codes.EMBARGOED)
    for version in known.versions:
        if number == str(version.number) or (number == CURRENT and version is known.versions[-1]):
            return ChosenVersion(known, version, principal.name)
    raise Missing(f"there is no version {number} of {known.ark}")


def withheld(principal: Principal, known: InventoryObject) -> str:
    """Why the principal may see the object, but not have its files; empty if it may."""
    embargo = known.embargo
    if embargo is None or not embargo.holds(now()) or principal.role.includes(Role.OPERATOR):
        return ""
    end = f"until {embargo.until:%Y-%m-%d %H:%M} UTC" if embargo.until else "whose end is not known"
    return f"{known.ark} is under an embargo {end}: only operators get its files"


def chosen_file(site: Site, principal: Principal, ark: str, number: str, path: str) -> ChosenFile:
    """One file of the version; Missing as for `chosen_version`."""
    chosen = chosen_version(site, principal, ark, number, (path,))
    for file in chosen.version.files:
        return ChosenFile(**vars(chosen), file=file)
    raise Missing(f"there is no {quote_name(path)} in version {chosen.version.number} of {chosen.known.ark}")


@dataclass(frozen=True)
class GivenBag:
    """A bag, and the event of giving it out."""

    bag: Bag
    event: PreservationEvent

    @property
    def name(self) -> str:
        """Answers that give out bags of the same name are the same, byte for byte."""
        return f"{self.event.at.isoformat()}_{self.bag.digest}"


def bag_of(
    site: Site,
    writer: EventWriter,
    principal: Principal,
    of: ChosenVersion,
    check: Callable[[], None],
    begun: str = "",
) -> GivenBag:
    """The bag of the version, with the events of the object and this one; `check` may end the reading.

    `begun`: the name of the bag of an earlier answer, which this is again, unless the record has changed
    since, or damage was found.
    """
    event = dissemination(of.known.ark, of.version.number, of.by, "a copy of all files as a BagIt bag")
    before = _time_of(begun)
    if before:
        event = replace(event, at=before)

    def document() -> Iterator[bytes]:
        for piece in premis_of(site, writer, principal, of.known, event, before=before):
            check()
            yield piece

    given = GivenBag(Bag(of.known, of.version, document(), event.at), event)
    if before and given.name != begun:
        return bag_of(site, writer, principal, of, check)
    return given


def _time_of(name: str) -> datetime | None:
    """The time in a bag's name; None if the name is not valid."""
    try:
        at = datetime.fromisoformat(name.partition("_")[0])
    except ValueError:
        return None
    return at if at.tzinfo else None


def premis_of(
    site: Site,
    writer: EventWriter,
    principal: Principal,
    known: InventoryObject,
    *newest: PreservationEvent,
    before: datetime | None = None,
) -> Iterator[bytes]:
    """The object's PREMIS document in pieces, with the events of `timeline`.

    Errors as `premis_record.pieces`. If a version's own PREMIS is damaged or missing, a worker checks the
    object.
    """

    def have_checked(version: InventoryVersion, damage: DamagedObject) -> None:
        _have_checked(site, writer, known, version.number, damage.message)

    events = timeline(site.inventory(), as_seen_by(principal, known), *newest, before=before)
    return premis_record.pieces(known, events, site.storage(), have_checked)


def file_bytes(site: Site, of: ChosenFile, start: int, length: int) -> Iterator[bytes]:
    """These bytes of the file, opened at the first of them; compared with the record if they are all.

    DamagedObject instead of the last bytes if storage has others.
    """
    ark, version = of.known.ark, of.version
    outgoing = next(site.storage().read_out(ark, version.storage_url, version.number, of.file.path), None)
    if outgoing is None:
        raise lost(ark, version, of.file.path)
    return read(ark, of.file, outgoing, start, length)


def event_of(of: ChosenFile) -> PreservationEvent:
    """The event of giving out the file, now."""
    return dissemination(of.known.ark, of.version.number, of.by, f"the file {of.file.path}")


def enter(site: Site, writer: EventWriter, event: PreservationEvent, *, series: bool = False) -> None:
    """Have the event entered; of a `series` of equal ones within SERIES, only the first."""
    since = event.at - SERIES if series else None
    facts = {"ark": event.ark, "version": event.version, "by": event.agent, "what": event.note}
    writer.write(lambda: site.inventory().enter_export(event, since), facts)


def raise_alarm(
    site: Site, writer: EventWriter, of: ChosenVersion, event: PreservationEvent, damage: DamagedObject
) -> None:
    """Have `event` entered with the damage that it met, and the object checked by a worker."""
    path = of.file.path if isinstance(of, ChosenFile) else ""
    enter(site, writer, refused_by(replace(event, at=now()), damage, path))
    _have_checked(site, writer, of.known, of.version.number, damage.message)


def _have_checked(site: Site, writer: EventWriter, known: InventoryObject, number: int, what: str) -> None:
    def ask() -> None:
        proofs.ask_after_damage(site.settings, site.inventory(), known, number)

    log().error("damage in storage", ark=known.ark, first=what)
    writer.write(ask, {"ark": known.ark, "what": what})


def verified_view(
    site: Site,
    writer: EventWriter,
    known: InventoryObject,
    events: tuple[ObjectEvent, ...],
    numbers: Collection[int],
    reading: Reading | None,
) -> ObjectView:
    """`object_view`, for which storage is read if there is a `reading`; has a worker check what is damaged.

    Records that contradict each other are damage, too: once a check has entered that, they need no other.
    A worker also checks what was read as stored, if the last check had found damage: only it ends the alarm.
    """
    try:
        storage = site.storage() if reading else None
        view = object_view(known, events, numbers, storage, reading or WHOLE)
    except DamagedObject as damage:
        _have_checked(site, writer, known, max(numbers), damage.message)
        raise
    problem = next(view.custody.problems, None)
    if problem and (reading or not known.is_damaged):
        _have_checked(site, writer, known, max(numbers), problem.what)
    elif reading and view.custody.complete and known.is_damaged:
        ask = partial(proofs.ask_after_damage, site.settings, site.inventory(), known, max(numbers))
        writer.write(ask, {"ark": known.ark, "what": "read as stored, after a check had found damage"})
    return view


class EventWriter:
    """Enters what the inventory has to know, in order, in a thread of its own, which begins with the first.

    While the inventory is away, it tries again. What is lost, because too much waits or the process ends, is
    in the log as an error; a process that is killed loses what it has not entered yet.
    """

    def __init__(self, limit: int = 10_000, pause: float = 1.0) -> None:
        self._waiting: queue.Queue[tuple[Callable[[], None], Mapping[str, object]]] = queue.Queue(limit)
        self._pause = pause
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, enter: Callable[[], None], facts: Mapping[str, object]) -> None:
        """Have `enter` called until it succeeds; `facts`: for the log if it never does."""
        try:
            self._waiting.put_nowait((enter, facts))
        except queue.Full:
            log().error("event not entered: too many wait", **facts)
            return
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            enter, facts = self._waiting.get()
            self._enter(enter, facts)
            self._waiting.task_done()

    def _enter(self, enter: Callable[[], None], facts: Mapping[str, object]) -> None:
        """Try until the inventory has the event, or refuses it for good."""
        while True:
            try:
                enter()
            except ArklineError as error:
                if error.error_kind is not ErrorKind.UNREACHABLE:
                    log().error("event not entered", error=str(error), **facts)
                    return
                log().warning("event waits for the inventory", error=str(error), **facts)
                time.sleep(self._pause)
            else:
                return

    def close(self, seconds: float = 5.0) -> None:
        """Wait for what is still to be entered, and log what is not."""
        end = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < end:
            time.sleep(CLOSE_POLL)
        while not self._waiting.empty():
            log().error("event not entered: the process ends", **self._waiting.get_nowait()[1])
