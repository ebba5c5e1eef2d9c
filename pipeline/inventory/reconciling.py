"""The inventory's jobs, versions and numbers, read page by page to compare all stores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, select

from pipeline.inventory.sql import SqlInventory, last_number
from pipeline.inventory.tables import (
    files,
    ingests,
    jobs_archived,
    minted_arks,
    objects,
    rows_with,
    versions,
)
from pipeline.states import JobState

T = TypeVar("T")

PAGE = 500
"""Rows per query."""


@dataclass(frozen=True)
class Entered:
    """A version as the inventory has it."""

    id: int
    """Increases in the order of the entries."""
    ark: str
    number: int
    jid: str
    key: str
    """Empty for a job of a release before 0.2.1."""
    url: str


def _entries() -> Select[Any]:
    return (
        select(
            ingests.c.id,
            objects.c.ark,
            versions.c.number,
            ingests.c.job_id,
            ingests.c.job_key,
            ingests.c.storage_url,
        )
        .join(versions, versions.c.id == ingests.c.inv_version_id)
        .join(objects, objects.c.id == versions.c.inv_object_id)
    )


def _entered(row: Row[Any]) -> Entered:
    return Entered(row.id, row.ark, row.number, row.job_id, row.job_key or "", row.storage_url)


def versions_of(inventory: SqlInventory, arks: Sequence[str]) -> dict[tuple[str, int], Entered]:
    """(ARK, number) -> entry, for these objects."""

    def read(connection: Connection) -> dict[tuple[str, int], Entered]:
        return {
            (entry.ark, entry.number): entry
            for entry in map(_entered, rows_with(connection, _entries(), objects.c.ark, arks))
        }

    return inventory.database.read(read)


def of_jobs(inventory: SqlInventory, jids: Sequence[str]) -> dict[str, Entered]:
    """Job id -> entry, for the jobs whose version is entered."""

    def read(connection: Connection) -> dict[str, Entered]:
        return {
            entry.jid: entry
            for entry in map(_entered, rows_with(connection, _entries(), ingests.c.job_id, jids))
        }

    return inventory.database.read(read)


def _in_order(
    inventory: SqlInventory,
    first: Any,
    page_after: Callable[..., Sequence[T]],
    key: Callable[[T], Any],
) -> Iterator[T]:
    """All rows, read page by page; a page begins after the key of the previous page's last row."""
    last = first
    while page := inventory.database.read(partial(page_after, last=last)):
        yield from page
        last = key(page[-1])


def every_version(inventory: SqlInventory) -> Iterator[Entered]:
    """All entries in order; those entered during the iteration come last."""

    def after(connection: Connection, last: int) -> list[Entered]:
        query = _entries().where(ingests.c.id > last).order_by(ingests.c.id).limit(PAGE)
        return list(map(_entered, connection.execute(query)))

    return _in_order(inventory, 0, after, lambda entry: entry.id)


def digests_of(inventory: SqlInventory, entry: Entered) -> dict[str, str]:
    """Logical path -> sha512, for the files of a version."""
    query = (
        select(files.c.pathname, files.c.digest_value)
        .join(ingests, ingests.c.inv_version_id == files.c.inv_version_id)
        .where(ingests.c.id == entry.id)
    )
    return inventory.database.read(
        lambda connection: {row.pathname: row.digest_value for row in connection.execute(query)}
    )


def every_minted_ark(inventory: SqlInventory) -> Iterator[str]:
    def after(connection: Connection, last: str) -> list[str]:
        arks = select(minted_arks.c.ark).where(minted_arks.c.ark > last)
        return list(connection.scalars(arks.order_by(minted_arks.c.ark).limit(PAGE)))

    return _in_order(inventory, "", after, lambda ark: ark)


def minted(inventory: SqlInventory, arks: Sequence[str]) -> frozenset[str]:
    """Those of the ARKs that the inventory lists as minted for a job."""

    query = select(minted_arks.c.ark)
    return inventory.database.read(
        lambda connection: frozenset(ark for (ark,) in rows_with(connection, query, minted_arks.c.ark, arks))
    )


def archived_states(inventory: SqlInventory, jids: Sequence[str]) -> dict[str, str]:
    """Job id -> archived state, for the jobs in the archive."""
    query = select(jobs_archived.c.jid, jobs_archived.c.state)
    return inventory.database.read(
        lambda connection: {
            jid: state for jid, state in rows_with(connection, query, jobs_archived.c.jid, jids)
        }
    )


def archived_without_entry(inventory: SqlInventory) -> Iterator[tuple[str, str]]:
    """(job id, ARK) of completed jobs in the archive whose version is not entered."""

    def after(connection: Connection, last: str) -> list[tuple[str, str]]:
        query = (
            select(jobs_archived.c.jid, jobs_archived.c.ark)
            .outerjoin(ingests, ingests.c.job_id == jobs_archived.c.jid)
            .where(
                jobs_archived.c.jid > last,
                jobs_archived.c.state == JobState.COMPLETED,
                ingests.c.id.is_(None),
            )
            .order_by(jobs_archived.c.jid)
            .limit(PAGE)
        )
        return [(row.jid, row.ark or "") for row in connection.execute(query)]

    return _in_order(inventory, "", after, lambda row: row[0])


def last_job(inventory: SqlInventory) -> int:
    """The highest job number in the inventory and its archive."""
    archived = inventory.database.read(lambda connection: last_number(connection, "jid", jobs_archived.c.jid))
    return max(inventory.last_job(), archived)
