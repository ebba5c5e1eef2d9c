"""Jobs and batches that have left ZooKeeper, from the SQL archive, if there is one.

`Archive` is called only when something is not in ZooKeeper, because loading SQLAlchemy and opening a database
take long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
    from pipeline.inventory.sql import SqlInventory

    Archive = Callable[[], SqlInventory | None]


def no_archive() -> None:
    """An Archive for callers that have none."""


def archived_batch(archive: Archive, bid: str) -> tuple[ArchivedBatch, tuple[ArchivedJob, ...]] | None:
    inventory = archive()
    if inventory is None:
        return None
    from pipeline.inventory.archive import find_batch, jobs_of

    found = find_batch(inventory, bid)
    return None if found is None else (found, jobs_of(inventory, bid))


def archived_job(archive: Archive, jid: str) -> ArchivedJob | None:
    inventory = archive()
    if inventory is None:
        return None
    from pipeline.inventory.archive import find_job

    return find_job(inventory, jid)
