"""A site's own inventory service, which is asked and told beside the inventory.

Rule: the inventory, which pages, search, fixity and recovery read, has all that the service has from here. It
is the first to reserve an ARK and its local ids, because it refuses more, and the last to enter a version. An
attempt that ends in between is completed by the next.
"""

from collections.abc import Sequence
from typing import Protocol

from pipeline.inventory.base import Recording
from pipeline.inventory.database import Database
from pipeline.inventory.recording import belongs_to_another
from pipeline.inventory.sql import SqlInventory
from pipeline.records import Job


class InventoryService(Protocol):
    """The contract of a plugin in the group `arkline.inventory`.

    Any call may be repeated after a crash. While the service does not answer, a call raises
    `ServiceDown(Service.INVENTORY, ...)`, and jobs wait; what the service refuses is
    `pipeline.outcome.system(...)`. `pipeline.outcome.fault_of` turns faults that last into the former.
    """

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """Local id -> ARK, for this owner's local ids that the service knows.

        StepFailed(content) if the service cannot keep one of these ids: nothing is stored then.
        """

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        """The object's local ids, as far as the service knows them."""

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        """Reserve local ids, which the service did not know when it was asked, for `ark`: all or none.

        StepFailed if one of them belongs to another object now.
        """

    def add_version(self, recording: Recording) -> None:
        """Add the version, which is in storage, unless the service has it.

        Returns only once the service has the version: the job is then completed.
        """


class InventoryWithService(SqlInventory):
    """The inventory, and the service beside it."""

    def __init__(self, database: Database, service: InventoryService) -> None:
        super().__init__(database)
        self._service = service

    def record(self, entry: Recording, rebuilt_by: str = "") -> None:
        self._service.add_version(entry)
        super().record(entry, rebuilt_by)

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """Local id -> ARK; the service's answer wins over ours, which may be from before it was asked."""
        if not local_id:
            return {}
        return super().arks_of(owner, local_id) | self._service.arks_of(owner, local_id)

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._service.local_ids_of(ark), *super().local_ids_of(ark))))

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        new = self._new_ids(owner, ark, local_id)
        super().reserve_local_ids(owner, ark, local_id)
        self._reserve_at_service(owner, ark, new)

    def claim_ark(
        self, job: Job, owner: str, ark: str, local_id: Sequence[str], *, unused: bool = False
    ) -> bool:
        new = self._new_ids(owner, ark, local_id)
        if not super().claim_ark(job, owner, ark, local_id, unused=unused):
            return False
        self._reserve_at_service(owner, ark, new)
        return True

    def _new_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> list[str]:
        """The ids that the service lacks; StepFailed(content) if one belongs to another object."""
        if not local_id:
            return []
        at_service = self._service.arks_of(owner, local_id)
        known = super().arks_of(owner, local_id) | at_service
        for name in local_id:
            if known.get(name, ark) != ark:
                raise belongs_to_another(owner, name, known[name], ark)
        return [name for name in dict.fromkeys(local_id) if name not in at_service]

    def _reserve_at_service(self, owner: str, ark: str, new: Sequence[str]) -> None:
        if new:
            self._service.reserve_local_ids(owner, ark, new)
