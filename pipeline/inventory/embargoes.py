"""The embargoes of objects: the end in the current version's `mrt-embargo.txt`, once that has been read.

Rule: what is not known counts as an embargo. An object whose current version has the file is under embargo
until the file of this very version is read.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    Row,
    Select,
    Table,
    or_,
    select,
    text,
)

from pipeline.inventory import tables
from pipeline.inventory.base import Embargo
from pipeline.inventory.columns import Utc
from pipeline.inventory.tables import files, ingests, objects, versions

PATH = "producer/mrt-embargo.txt"

_IS_EMBARGO = text(f"pathname = '{PATH}'")
"""As text: a partial index is used only by a query with the same condition."""

Index("ix_inv_files_embargo", files.c.inv_version_id, sqlite_where=_IS_EMBARGO, postgresql_where=_IS_EMBARGO)

embargoes = Table(
    "inv_embargoes",
    tables.metadata,
    Column("inv_object_id", ForeignKey("inv_objects.id"), primary_key=True, autoincrement=False),
    # the version that has the file
    Column("version", Integer, nullable=False),
    Column("readable", Boolean, nullable=False),
    # NULL: the file says that there is no embargo, or cannot be read
    Column("until", Utc, nullable=True),
)


@dataclass(frozen=True)
class UnreadEmbargo:
    """The file of an embargo that the inventory does not know yet."""

    object_id: int
    ark: str
    version: int
    storage_url: str
    size: int


def of_object(connection: Connection, row: Row[Any]) -> Embargo | None:
    """The embargo of the object in this row of `inv_objects`; None if it has none."""
    own = _files().where(objects.c.id == row.id)
    if connection.execute(own.limit(1)).one_or_none() is None:
        return None
    known = connection.execute(select(embargoes).where(embargoes.c.inv_object_id == row.id)).one_or_none()
    if known is None or known.version != row.version_number or not known.readable:
        return Embargo(None)
    return Embargo(known.until) if known.until else None


def unread(connection: Connection, after: int, limit: int) -> tuple[UnreadEmbargo, ...]:
    """The first unread embargoes of objects with a greater key than `after`."""
    of_version = embargoes.c.version
    query = (
        _files()
        .outerjoin(embargoes, embargoes.c.inv_object_id == objects.c.id)
        .where(objects.c.id > after, or_(of_version.is_(None), of_version != objects.c.version_number))
        .order_by(objects.c.id)
    )
    return tuple(UnreadEmbargo(*row) for row in connection.execute(query.limit(limit)))


def _files() -> Select[Any]:
    """The files of embargoes in current versions."""
    return (
        select(objects.c.id, objects.c.ark, versions.c.number, ingests.c.storage_url, files.c.full_size)
        .join(versions, versions.c.inv_object_id == objects.c.id)
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .join(files, files.c.inv_version_id == versions.c.id)
        .where(versions.c.number == objects.c.version_number, _IS_EMBARGO)
    )


def enter(connection: Connection, ark: str, version: int, until: datetime | None, *, readable: bool) -> None:
    """Enter what the file of this version says; nothing if a newer version has become the current one."""
    current = (objects.c.ark == ark, objects.c.version_number == version)
    object_id = connection.scalar(select(objects.c.id).where(*current))
    if object_id is None:
        return
    row = {"version": version, "readable": readable, "until": until}
    statement = tables.insert(connection, embargoes).values({"inv_object_id": object_id, **row})
    connection.execute(statement.on_conflict_do_update(index_elements=["inv_object_id"], set_=row))
