"""Jobs and batches that have left ZooKeeper, from the SQL archive, if there is one.

`Archive` is called only when something is not in ZooKeeper, because opening a database takes long.
"""

from collections.abc import Callable

from pipeline.inventory.archive import ArchivedBatch, ArchivedJob, find_batch, find_job, jobs_of
from pipeline.inventory.sql import SqlInventory

Archive = Callable[[], SqlInventory | None]


def no_archive() -> None:
    """An Archive for callers that have none."""


def archived_batch(archive: Archive, bid: str) -> tuple[ArchivedBatch, tuple[ArchivedJob, ...]] | None:
    inventory = archive()
    if inventory is None:
        return None
    found = find_batch(inventory, bid)
    return None if found is None else (found, jobs_of(inventory, bid))


def archived_job(archive: Archive, jid: str) -> ArchivedJob | None:
    inventory = archive()
    if inventory is None:
        return None
    return find_job(inventory, jid)
