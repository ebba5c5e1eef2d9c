"""The files of the version that a job stored, and the PREMIS document of its object."""

from collections.abc import Iterator

from operations import objects
from operations.site import Site
from operations.visibility import visible_job
from pipeline.inventory.base import InventoryFile
from pipeline.preservation import premis_record
from pipeline.principal import Principal
from pipeline.records import Record
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


def job_files(site: Site, principal: Principal, jid: str, limit: int, after: int = 0) -> JobFiles:
    visible_job(site, principal, jid)
    inventory = site.archive()
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


def premis(site: Site, principal: Principal, jid: str) -> Iterator[bytes]:
    """The PREMIS document of the object of which the job stored a version, piece by piece.

    Missing before the version is recorded; errors as `premis_record.pieces`.
    """
    visible_job(site, principal, jid)
    inventory = site.archive()
    page = inventory.files_of_job(jid, 1) if inventory else None
    known = inventory.describe_object(page.ark) if inventory and page else None
    if inventory is None or known is None:
        raise Missing(f"{jid} has stored nothing: its PREMIS exists once its version is in the inventory")
    objects.check_visible(site, principal, known)
    events = objects.timeline(inventory, objects.as_seen_by(principal, known))
    return premis_record.pieces(known, events, site.storage())
