"""The files of the version that a job stored, a page at a time: an object may have a hundred thousand."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from pipeline.inventory.base import InventoryFile
from pipeline.inventory.description import inventory_file
from pipeline.inventory.tables import files, ingests, objects, versions


@dataclass(frozen=True)
class FilesPage:
    """Files of a version, in the order of the inventory."""

    ark: str
    number: int
    total: int
    """Files of the version."""
    files: tuple[InventoryFile, ...]
    last: int | None
    """The key of the last file, after which the next page begins; None if no file follows."""


def files_of_job(connection: Connection, jid: str, limit: int, after: int = 0) -> FilesPage | None:
    """None if no version of the job was recorded."""
    version = connection.execute(
        select(versions.c.id, versions.c.number, objects.c.ark)
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .join(objects, objects.c.id == versions.c.inv_object_id)
        .where(ingests.c.job_id == jid)
    ).one_or_none()
    if version is None:
        return None
    own = files.c.inv_version_id == version.id
    total = connection.scalar(select(func.count()).select_from(files).where(own))
    query = select(files).where(own, files.c.id > after).order_by(files.c.id).limit(limit + 1)
    rows = connection.execute(query).all()
    return FilesPage(
        ark=version.ark,
        number=version.number,
        total=total or 0,
        files=tuple(inventory_file(row) for row in rows[:limit]),
        last=rows[limit - 1].id if len(rows) > limit else None,
    )
