"""The entry of every object in the fixity schedule: made with the object's first version.

Releases with a schema before 0019 did not enter it: each upgrade does, and the schedule's runs do for objects
of workers of such a release that still run.
"""

from sqlalchemy import Connection, func, select

from pipeline.inventory import tables
from pipeline.inventory.tables import fixities, ingests, objects, versions

NEWEST = 10_000
"""Objects that a run of the schedule looks at: a million a day are 700 in the minute between two runs."""


def enter_missing(connection: Connection, after: int = 0) -> None:
    """Enter the objects with a key above `after` that the schedule lacks."""
    scheduled = fixities.c.inv_object_id
    of_object = (select(scheduled).where(scheduled == objects.c.id, scheduled > after)).exists()
    missing = (
        select(objects.c.id, ingests.c.profile, objects.c.created)
        .join(versions, versions.c.inv_object_id == objects.c.id)
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(versions.c.number == objects.c.version_number, objects.c.id > after, ~of_object)
        # as well, so that no table is read from its beginning
        .where(versions.c.inv_object_id > after, ingests.c.inv_object_id > after)
    )
    names = ["inv_object_id", "profile", "since"]
    connection.execute(
        tables.insert(connection, fixities).from_select(names, missing).on_conflict_do_nothing()
    )


def enter_newest(connection: Connection, newest: int = NEWEST) -> None:
    """Enter the objects that the schedule lacks among the newest ones."""
    last = connection.scalar(select(func.max(objects.c.id)))
    enter_missing(connection, (last or 0) - newest)
