"""The events of an object, and its PREMIS document: its files, and its events up to the last check.

The events up to storage are copied from the stored versions' own PREMIS, once its digest is confirmed. Later
events are in the inventory: stored, read back, entered, checked again, exported. Rule: an event records work
that was done, with the time of the work.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import IO, cast
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pydantic import ValidationError

from pipeline.description import premis
from pipeline.description.premis import ObjectEvent, PremisFile
from pipeline.fixity import OF_RECORD, Digest, Digester
from pipeline.humanize import counted
from pipeline.inventory.base import (
    FixityProof,
    InventoryFile,
    InventoryObject,
    InventoryVersion,
    PreservationEvent,
)
from pipeline.inventory.description import DISSEMINATION, FAIL, FIXITY_CHECK, PASS
from pipeline.inventory.recording import REBUILT
from pipeline.names import quote_name
from pipeline.outcome import DamagedObject, damaged
from pipeline.records import now
from pipeline.storage.base import Storage

IN_MEMORY = 16 * 2**20
"""Bytes of a stored document that are held in memory; a larger one is copied to a temporary file."""

_STORED = f"system/{premis.NAME}"
_OBJECT, _EVENT, _AGENT = (f"{{{premis.NAMESPACE}}}{name}" for name in ("object", "event", "agent"))
_DECLARATION = f' xmlns:premis="{premis.NAMESPACE}"'

STORAGE = "storage"
"""A type of event that the Library of Congress's vocabulary lacks."""

ACCESSION = "accession"

ElementTree.register_namespace("premis", premis.NAMESPACE)


def events_of(known: InventoryObject, entered: Iterable[PreservationEvent]) -> tuple[ObjectEvent, ...]:
    """The events of all versions, oldest first; `entered` are the rows of the inventory."""
    entered = tuple(entered)
    of_versions = (event for version in known.versions for event in _of_version(version))
    runs = (
        event
        for version in known.versions
        for run in version.checks
        for event in premis.check_events(version.jid, version.number, run)
    )
    last = _last_proof(known.ark, known.fixity, entered) if known.fixity else ()
    all_events = (*runs, *of_versions, *map(_as_entered, entered), *last)
    return tuple(sorted(all_events, key=lambda event: event.at))


def _of_version(version: InventoryVersion) -> Iterator[ObjectEvent]:
    number, new = version.number, sum(file.added for file in version.files)
    place = f" at {version.storage_url}" if version.storage_url else ""
    yield ObjectEvent(
        identifier=f"{version.jid}-stored",
        type=STORAGE,
        at=version.created,
        outcome=PASS,
        version=number,
        detail=f"version {number}{place}: {counted(len(version.files), 'file')}, {new:,} new",
        note=f"job {version.jid} of batch {version.bid}",
    )
    if version.verified is not None:
        detail = f"the files that version {number} added, read back from storage and compared"
        yield ObjectEvent(f"{version.jid}-read-back", FIXITY_CHECK, version.verified, PASS, number, detail)
    if version.recorded is not None:
        detail = f"version {number}, entered in the inventory"
        yield ObjectEvent(f"{version.jid}-recorded", ACCESSION, version.recorded, PASS, number, detail)


def _as_entered(event: PreservationEvent) -> ObjectEvent:
    notes = [event.note] if event.note else []
    notes += (f"{file.place}: {file.what}" for file in event.files)
    if event.type == DISSEMINATION:
        detail, notes = _given_out(event)
    elif event.type == REBUILT:
        detail = f"the entry of version {event.version} in the inventory, made again from storage"
    else:
        detail = "every file of every version, read again from storage and compared"
    return ObjectEvent(
        identifier=_identifier(event.ark, event.type, event.at),
        type=event.type,
        at=event.at,
        outcome=event.outcome,
        version=event.version,
        detail=detail,
        note="\n".join(notes),
        agent=event.agent,
    )


def _given_out(event: PreservationEvent) -> tuple[str, list[str]]:
    """What was asked for, and the damage.

    Up to 0.3.0, the note of a failed event was the damage, and what was asked for was not kept.
    """
    damage = [file.what for file in event.files]
    if event.outcome == PASS and not event.note:
        what = "every file read from storage and compared, for a copy of the object"
        return f"version {event.version}, {what}", damage
    if event.outcome != PASS and not damage:
        return f"version {event.version}, read from storage to be given out", [event.note]
    return f"version {event.version}: {event.note or 'a copy of the object'}", damage


def _last_proof(
    ark: str, proof: FixityProof, entered: tuple[PreservationEvent, ...]
) -> tuple[ObjectEvent, ...]:
    """The event of the last complete check; a check that changed the outcome is already entered."""
    if proof.checked is None or proof.damaged or any(event.at == proof.checked for event in entered):
        return ()
    files, versions = counted(proof.files, "file"), counted(proof.versions, "version")
    detail = f"{files} of {versions}, read again from storage and compared"
    return (
        ObjectEvent(
            identifier=_identifier(ark, FIXITY_CHECK, proof.checked),
            type=FIXITY_CHECK,
            at=proof.checked,
            outcome=PASS,
            version=None,
            detail=detail,
        ),
    )


def _identifier(ark: str, kind: str, at: datetime) -> str:
    """The event's identifier, without the row's key, which a restored inventory may give to another event."""
    return f"{ark} {kind} {at.isoformat()}"


def pieces(
    known: InventoryObject,
    events: Iterable[ObjectEvent],
    storage: Storage,
    on_damage: Callable[[InventoryVersion, DamagedObject], object],
) -> Iterator[bytes]:
    """The document in pieces; errors as in `Storage.read_back`.

    For a version whose own PREMIS is damaged or missing, one event saying so replaces its earlier events, and
    `on_damage` is called.
    """
    yield premis.BEGIN
    yield premis.object_element(known.ark, known.local_id, known.versions[-1].payload_name)
    for file in _files(known):
        yield premis.file_element(known.ark, file)
    agents: dict[tuple[str, str], bytes] = {}
    copied = set()
    for version in known.versions:
        try:
            for element in _stored_elements(known.ark, version, storage):
                if element.tag == _EVENT:
                    copied.add(_named(element, "event"))
                    yield _serialized(element)
                else:
                    agents[_named(element)] = _serialized(element)
        except DamagedObject as damage:
            on_damage(version, damage)
            yield premis.event_element(known.ark, _lost_events(version, damage))
    for event in events:
        if (premis.PROGRAM, event.identifier) not in copied:  # a check before storing is in the version's own
            agents[event.agent_name] = premis.agent_element(event)
            yield premis.event_element(known.ark, event)
    agents[premis.PROGRAM, premis.PROGRAM] = premis.program_element()
    yield from agents.values()
    yield premis.END


def _files(known: InventoryObject) -> Iterator[PremisFile]:
    """Every file once, with the number of the first version that has it."""
    described: set[tuple[str, str]] = set()
    events = {run.check: run.event for version in known.versions for run in version.checks}
    for version in known.versions:
        for file in version.files:
            if (file.path, file.digest) not in described:
                described.add((file.path, file.digest))
                yield PremisFile(
                    identifier=f"{version.number}/{file.path}",
                    name=file.path.partition("/")[2],
                    size=file.size,
                    mime_type=file.mime_type,
                    digest=_digest(known.ark, version, file, file.digest),
                    declared=_declared(known.ark, version, file),
                    formats=_formats(file, events),
                )


def formats_of(known: InventoryObject, file: InventoryFile) -> tuple[str, ...]:
    """Codes of PRONOM, by the object's checks that identify formats."""
    events = {run.check: run.event for version in known.versions for run in version.checks}
    return _formats(file, events)


def _formats(file: InventoryFile, events: Mapping[str, str]) -> tuple[str, ...]:
    """`events`: the types of the events of the object's checks, by name."""
    codes = (
        code
        for finding in file.findings
        for code in premis.formats(events.get(finding.check, ""), (finding.code,))
    )
    return tuple(dict.fromkeys(codes))


def _digest(ark: str, version: InventoryVersion, file: InventoryFile, text: str) -> Digest:
    """The digest in the row of the file; DamagedObject if it is none, since PREMIS would state it."""
    algorithm, _, value = text.partition(":")
    try:
        return Digest(algorithm=algorithm, value=value)
    except ValidationError as error:
        raise damaged(
            f"the inventory has {quote_name(value)}, which is no {algorithm}, for {quote_name(file.path)} in "
            f"version {version.number} of {ark}: restore this row of inv_files from a copy of the inventory"
        ) from error


def _declared(ark: str, version: InventoryVersion, file: InventoryFile) -> Digest | None:
    came = file.provenance
    if came is None or came.container or not came.digest:
        return None
    return _digest(ark, version, file, came.digest)


def _stored_elements(ark: str, version: InventoryVersion, storage: Storage) -> Iterator[Element]:
    """The events and agents in the version's own PREMIS, if it has one; DamagedObject if that is damaged."""
    recorded = next((file for file in version.files if file.path == _STORED), None)
    if recorded is None:
        return
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
        _copy(ark, version, recorded, storage, copy)
        copy.seek(0)
        try:
            yield from _events_and_agents(copy)
        except ElementTree.ParseError as error:
            raise damaged(f"{_STORED} of version {version.number} of {ark} is no XML: {error}") from error


def _events_and_agents(document: IO[bytes]) -> Iterator[Element]:
    parser: ElementTree.XMLPullParser[Element] = ElementTree.XMLPullParser(("start", "end"))
    root = None
    for line in premis.without_files(document):
        parser.feed(line)
        for step, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            if root is None:
                root = element
            elif step == "end" and element.tag in (_EVENT, _AGENT, _OBJECT):
                if element.tag != _OBJECT:
                    yield element
                # processed elements would fill the memory
                root.clear()
    parser.close()


def _copy(
    ark: str, version: InventoryVersion, recorded: InventoryFile, storage: Storage, copy: IO[bytes]
) -> None:
    digest = Digester()
    for file in storage.read_out(ark, version.storage_url, version.number, _STORED):
        for piece in file.pieces:
            digest.update(piece)
            copy.write(piece)
    if f"{OF_RECORD}:{digest.value()}" != recorded.digest:
        raise damaged(f"{_STORED} of version {version.number} of {ark} is not as it was stored")


def _serialized(element: Element) -> bytes:
    """The element on lines of its own; the root element declares the namespaces."""
    ElementTree.indent(element, level=1)
    text = ElementTree.tostring(element, encoding="unicode")
    head, _, rest = text.partition(">")
    return f"  {head.replace(_DECLARATION, '')}>{rest.rstrip()}\n".encode()


def _named(element: Element, what: str = "agent") -> tuple[str, str]:
    """The type and the value of the identifier of an agent or an event."""
    kind, value = (
        element.findtext(f".//{{{premis.NAMESPACE}}}{what}Identifier{part}") for part in ("Type", "Value")
    )
    return kind or "", value or ""


def _lost_events(version: InventoryVersion, damage: DamagedObject) -> ObjectEvent:
    at = now()
    return ObjectEvent(
        identifier=f"{version.jid}-unreadable-{at.isoformat()}",
        type=FIXITY_CHECK,
        at=at,
        outcome=FAIL,
        version=version.number,
        detail=f"the events of version {version.number} up to its storage, read for this document",
        note=damage.message,
    )
