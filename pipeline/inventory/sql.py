"""The inventory in an SQL database."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from pipeline.deployment import Deployment, Expected
from pipeline.inventory import deployment, description, recording
from pipeline.inventory.base import InventoryObject, PreservationEvent, Recording
from pipeline.inventory.database import Database
from pipeline.inventory.description import FilesPage
from pipeline.inventory.recording import Placement
from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.records import Job

T = TypeVar("T")


class SqlInventory:
    """Cheap to create, for any thread and child process; satisfies `pipeline.deployment.Store` too.

    Errors are StepFailed: `content` if identifiers conflict, `transient` if a retry may succeed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def record(self, entry: Recording, rebuilt_by: str = "") -> None:
        """Enter a version; idempotent by job. `rebuilt_by`: who makes the entry from storage."""
        self.database.write(lambda connection: recording.enter(connection, entry, rebuilt_by))

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """Local id -> ARK, for the local ids of this owner that are known."""
        if not local_id:
            return {}
        return self.database.read(lambda connection: recording.known_local_ids(connection, owner, local_id))

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        """All local ids of the object, in the order in which they were recorded."""
        return self.database.read(lambda connection: recording.local_ids_of(connection, ark))

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        """Reserve these local ids of this owner for `ark`, all or none; called before anything is stored.

        Idempotent. StepFailed(content), naming the id and the other ARK, if a local id belongs to another
        object, or if the object belongs to another owner.
        """

        def reserve(connection: Connection) -> None:
            recording.check_owner(connection, owner, ark)
            recording.reserve_local_ids(connection, owner, ark, local_id)

        self.database.write(reserve)

    def placement_of(self, ark: str) -> Placement | None:
        """The owner and the collections of the object; None if the inventory has no such object."""
        return self.database.read(lambda connection: recording.placement_of(connection, ark))

    def titles_of(self, owner: str, within: Sequence[str], arks: Sequence[str]) -> dict[str, str]:
        """ARK -> title, for those of the ARKs that name an object of the owner in one of these collections.

        Titles of other collections are not for the depositors of these.
        """
        if not arks:
            return {}
        return self.database.read(lambda connection: recording.titles(connection, owner, within, arks))

    def ark_of(self, job: Job) -> str | None:
        return self.database.read(lambda connection: recording.ark_of(connection, job))

    def known_arks(self, arks: Sequence[str]) -> frozenset[str]:
        return self.database.read(lambda connection: recording.known_arks(connection, arks))

    def claim_ark(
        self, job: Job, owner: str, ark: str, local_id: Sequence[str], *, unused: bool = False
    ) -> bool:
        """Enter the ARK as minted for the job, with its local ids; False if another job has the ARK.

        `unused`: nothing is stored under it, so it is another's if the inventory knows it.
        """

        def claim(connection: Connection) -> bool:
            if not recording.claim_ark(connection, job, owner, ark, unused=unused):
                return False
            recording.reserve_local_ids(connection, owner, ark, local_id)
            return True

        return self.database.write(claim)

    def objects_named(self, local_id: str) -> tuple[str, ...]:
        """The ARKs with this local id: one per owner that uses it."""
        return self.database.read(lambda connection: recording.arks_named(connection, local_id))

    def describe_object(self, ark: str) -> InventoryObject | None:
        return self.database.read(lambda connection: description.describe(connection, ark))

    def files_of_job(self, jid: str, limit: int, after: int = 0) -> FilesPage | None:
        """A page of the files of the version that the job stored; None if none was recorded."""
        return self.database.read(lambda connection: description.files_of_job(connection, jid, limit, after))

    def events_of(self, ark: str) -> tuple[PreservationEvent, ...]:
        """All entered events of the object, oldest first."""
        return self.database.read(lambda connection: description.entered_events(connection, ark))

    def enter_export(self, export: PreservationEvent) -> None:
        self.database.write(lambda connection: description.enter_export(connection, export))

    @property
    def service(self) -> Service:
        return Service.INVENTORY

    @property
    def place(self) -> str:
        return self.database.name

    def read_deployment(self) -> Deployment | None:
        return self._if_exists(deployment.read, None)

    def write_deployment(self, written: Deployment) -> None:
        self.database.write(lambda connection: deployment.write(connection, written))

    def is_empty(self) -> bool:
        return self._if_exists(deployment.is_empty, True)

    def last_job(self) -> int:
        """The highest job number in the inventory."""
        return self._if_exists(deployment.last_job, 0)

    def last_batch(self) -> int:
        """The highest batch number of an ingest or of the archive."""
        return self._if_exists(deployment.last_batch, 0)

    def entered_jobs(self, jids: Sequence[str]) -> frozenset[str]:
        """The jobs, out of `jids`, whose version the inventory has."""
        return self._if_exists(lambda connection: deployment.entered_jobs(connection, jids), frozenset())

    def newest_versions(self, limit: int) -> tuple[tuple[str, str], ...]:
        """(ARK, job id) of the versions that were entered last."""
        return self._if_exists(lambda connection: deployment.newest_versions(connection, limit), ())

    def _if_exists(self, work: Callable[[Connection], T], otherwise: T) -> T:
        """The result of `work`; ServiceDown if the database does not answer."""
        try:
            return self.database.read(work) if self.database.exists() else otherwise
        except StepFailed as failure:
            raise ServiceDown(Service.INVENTORY, failure.message) from failure


def open_inventory(url: str, expected: Expected | None = None) -> SqlInventory:
    """The inventory at an SQLAlchemy URL; a process's first use upgrades the schema.

    `expected`: the deployment that an existing inventory must belong to; without it, a missing inventory is
    created.
    """
    return SqlInventory(Database(url, expected=expected))
