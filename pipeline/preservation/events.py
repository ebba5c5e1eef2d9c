"""The events of an object after its processing: stored, read back, entered, checked again, exported.

Rule: an event is a record of work that was done, with the time of the work in the inventory. The events up to
storage are in the version itself (`pipeline/description/premis.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pipeline.description.premis import PROGRAM
from pipeline.inventory.base import FixityProof, InventoryObject, InventoryVersion, PreservationEvent
from pipeline.inventory.description import DISSEMINATION, FIXITY_CHECK, PASS
from pipeline.inventory.recording import REBUILT

STORAGE = "storage"
"""The vocabulary of the Library of Congress has no such type."""

ACCESSION = "accession"


@dataclass(frozen=True)
class ObjectEvent:
    identifier: str
    """Unique in arkline."""
    type: str
    at: datetime
    outcome: str
    """`pass` or `fail`."""
    version: int | None
    """The version that the event concerns; None: all versions."""
    detail: str
    note: str = ""
    agent: str = PROGRAM


def events_of(known: InventoryObject, entered: Iterable[PreservationEvent]) -> tuple[ObjectEvent, ...]:
    """The events of all versions, oldest first; `entered` are those that the inventory has as rows."""
    entered = tuple(entered)
    of_versions = (event for version in known.versions for event in _of_version(version))
    last = _last_proof(known.ark, known.fixity, entered) if known.fixity else ()
    return tuple(sorted((*of_versions, *map(_as_entered, entered), *last), key=lambda event: event.at))


def _of_version(version: InventoryVersion) -> Iterator[ObjectEvent]:
    number, new = version.number, sum(file.added for file in version.files)
    place = f" at {version.storage_url}" if version.storage_url else ""
    yield ObjectEvent(
        identifier=f"{version.jid}-stored",
        type=STORAGE,
        at=version.created,
        outcome=PASS,
        version=number,
        detail=f"version {number}{place}: {len(version.files):,} files, {new:,} new",
        note=f"job {version.jid} of batch {version.bid}",
    )
    if version.verified is not None:
        detail = f"the files that version {number} added, read back from storage and compared"
        yield ObjectEvent(f"{version.jid}-read-back", FIXITY_CHECK, version.verified, PASS, number, detail)
    if version.recorded is not None:
        detail = f"version {number}, entered in the inventory"
        yield ObjectEvent(f"{version.jid}-recorded", ACCESSION, version.recorded, PASS, number, detail)


def _as_entered(event: PreservationEvent) -> ObjectEvent:
    if event.type == DISSEMINATION:
        detail = (
            f"version {event.version}, every file read from storage and compared, for a copy of the object"
        )
    elif event.type == REBUILT:
        detail = f"the entry of version {event.version} in the inventory, made again from storage"
    else:
        detail = "every file of every version, read again from storage and compared"
    damage = (f"{file.path or 'description'} of version {file.version}: {file.what}" for file in event.files)
    return ObjectEvent(
        identifier=_identifier(event.ark, event.type, event.at),
        type=event.type,
        at=event.at,
        outcome=event.outcome,
        version=event.version,
        detail=detail,
        note="\n".join((*([event.note] if event.note else ()), *damage)),
        agent=event.agent,
    )


def _last_proof(
    ark: str, proof: FixityProof, entered: tuple[PreservationEvent, ...]
) -> tuple[ObjectEvent, ...]:
    """The last complete reading; a reading that changed the outcome is entered already."""
    if proof.checked is None or proof.damaged or any(event.at == proof.checked for event in entered):
        return ()
    detail = f"{proof.files:,} files of {proof.versions:,} versions, read again from storage and compared"
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
    """Without the key of the row, which a restored inventory gives to another event."""
    return f"{ark} {kind} {at.isoformat()}"
