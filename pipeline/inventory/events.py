"""Events of stored objects: fixity checks that changed the outcome, and exports."""

from sqlalchemy import Connection, delete, insert, select

from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.description import preservation_event
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import events, objects

FIXITY_CHECK = "fixity check"
DISSEMINATION = "dissemination"
"""Types of events in the Library of Congress's vocabulary; an export is a dissemination."""

PASS, FAIL = "pass", "fail"

KEPT_EXPORTS = 100
"""Exports of an object that the inventory keeps; the oldest goes first."""


def of_object(inventory: SqlInventory, ark: str) -> tuple[PreservationEvent, ...]:
    """All entered events of the object, oldest first."""
    query = (
        select(events)
        .join(objects, objects.c.id == events.c.inv_object_id)
        .where(objects.c.ark == ark)
        .order_by(events.c.id)
    )
    rows = inventory.database.read(lambda connection: connection.execute(query).all())
    return tuple(preservation_event(row, ark) for row in rows)


def enter_export(inventory: SqlInventory, export: PreservationEvent) -> None:
    """Enter an export; its `id` and `reported` are set here, because nobody gets a notice of an export."""

    def write(connection: Connection) -> None:
        object_id = connection.execute(select(objects.c.id).where(objects.c.ark == export.ark)).scalar_one()
        connection.execute(
            insert(events),
            {
                "inv_object_id": object_id,
                "type": export.type,
                "at": export.at,
                "agent": export.agent,
                "outcome": export.outcome,
                "damaged": export.damaged,
                "detail": [],
                "version": export.version,
                "note": export.note,
                "reported": export.at,
            },
        )
        exports = (
            select(events.c.id)
            .where(events.c.inv_object_id == object_id, events.c.type == DISSEMINATION)
            .order_by(events.c.id.desc())
        )
        outdated = list(connection.scalars(exports.offset(KEPT_EXPORTS)))
        if outdated:
            connection.execute(delete(events).where(events.c.id.in_(outdated)))

    inventory.database.write(write)
