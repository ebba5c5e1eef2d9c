"""The inventory in an SQL database."""

from collections.abc import Sequence

from sqlalchemy import Connection

from pipeline.inventory import description, localids, recording
from pipeline.inventory.base import InventoryObject, Recording
from pipeline.inventory.database import Database


class SqlInventory:
    """Satisfies `pipeline.inventory.base.Inventory`; cheap to create, for any thread and child process."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def record(self, entry: Recording) -> None:
        self.database.write(lambda connection: recording.enter(connection, entry))

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        if not local_id:
            return {}
        return self.database.read(lambda connection: localids.known(connection, owner, local_id))

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        return self.database.read(lambda connection: localids.of_object(connection, ark))

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        def reserve(connection: Connection) -> None:
            localids.check_owner(connection, owner, ark)
            localids.reserve(connection, owner, ark, local_id)

        self.database.write(reserve)

    def objects_named(self, local_id: str) -> tuple[str, ...]:
        """The ARKs with this local id: one per owner that uses it."""
        return self.database.read(lambda connection: localids.arks(connection, local_id))

    def describe_object(self, ark: str) -> InventoryObject | None:
        return self.database.read(lambda connection: description.describe(connection, ark))


def open_inventory(url: str) -> SqlInventory:
    """The inventory at an SQLAlchemy URL; a process's first use creates or upgrades the schema."""
    return SqlInventory(Database(url))
