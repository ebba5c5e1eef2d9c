"""What was stored when: the versions of an hour, and the versions of each batch.

A version counts when storage made it, so that an inventory rebuilt from storage shows no burst.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from pipeline.inventory.tables import files, ingests, versions


@dataclass(frozen=True)
class StoredVersions:
    """Versions of one collection and one depositor."""

    collection: str
    depositor: str
    """Empty if it is not known."""
    number: int
    bytes: int
    """Of the files that were new in their version."""


@dataclass(frozen=True)
class Stored:
    """What was stored of one batch."""

    number: int
    last: datetime


def stored_between(connection: Connection, start: datetime, end: datetime) -> tuple[StoredVersions, ...]:
    size = select(func.sum(files.c.billable_size)).where(files.c.inv_version_id == versions.c.id)
    query = (
        select(ingests.c.profile, ingests.c.depositor, func.count(), func.sum(size.scalar_subquery()))
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(versions.c.created >= start, versions.c.created < end)
        .group_by(ingests.c.profile, ingests.c.depositor)
    )
    return tuple(
        StoredVersions(collection, depositor or "", number, int(size or 0))
        for collection, depositor, number, size in connection.execute(query)
    )


def stored_of_batches(connection: Connection, since: datetime) -> Mapping[str, Stored]:
    """BID -> what was stored of the batch since then; a batch without a version is left out."""
    query = (
        select(ingests.c.batch_id, func.count(), func.max(versions.c.created))
        .join(versions, versions.c.id == ingests.c.inv_version_id)
        .where(versions.c.created >= since)
        .group_by(ingests.c.batch_id)
    )
    return {bid: Stored(number, last) for bid, number, last in connection.execute(query)}
