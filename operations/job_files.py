"""The files of the version that a job stored, and the PREMIS document of its object."""

from collections.abc import Iterator

from operations import objects
from operations.visibility import object_as_seen_by
from pipeline.inventory.base import InventoryFile, InventoryObject
from pipeline.inventory.sql import SqlInventory
from pipeline.preservation import premis_record
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.storage.base import Storage
from zkstate.errors import Missing


class JobFiles(Record):
    """A page of the files; none before the version is recorded in the inventory."""

    jid: str
    ark: str = ""
    version: int | None = None
    total: int = 0
    """Files of the version."""
    files: tuple[InventoryFile, ...] = ()
    next: str | None = None


def job_files(inventory: SqlInventory | None, jid: str, limit: int, after: int = 0) -> JobFiles:
    page = inventory.files_of_job(jid, limit, after) if inventory else None
    if page is None:
        return JobFiles(jid=jid)
    return JobFiles(
        jid=jid,
        ark=page.ark,
        version=page.number,
        total=page.total,
        files=page.files,
        next=None if page.last is None else str(page.last),
    )


def object_of_job(inventory: SqlInventory | None, jid: str) -> InventoryObject:
    """The object of which the job stored a version; Missing before the version is recorded."""
    page = inventory.files_of_job(jid, 1) if inventory else None
    known = inventory.describe_object(page.ark) if inventory and page else None
    if known is None:
        raise Missing(f"{jid} has stored nothing: its PREMIS exists once its version is in the inventory")
    return known


def premis(
    inventory: SqlInventory, known: InventoryObject, storage: Storage, principal: Principal
) -> Iterator[bytes]:
    """The PREMIS document of the object, piece by piece; errors as `premis_record.pieces`."""
    events = objects.timeline(inventory, object_as_seen_by(principal, known))
    return premis_record.pieces(known, events, storage)
