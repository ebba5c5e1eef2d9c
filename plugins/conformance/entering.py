"""What the tests of an inventory do with it: versions of jobs, ids of objects, and processes that die."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import pytest

from pipeline.fixity import StoredFile, StoredVersion
from pipeline.inventory.base import Recording
from pipeline.inventory.database import Database
from pipeline.inventory.service import InventoryService, InventoryWithService
from pipeline.inventory.sql import SqlInventory
from plugins.conformance import deaths
from plugins.conformance.deaths import End
from plugins.conformance.minting import AT, BID, a_job
from plugins.conformance.subjects import InventoryPlace, OwnInventory, Registry

ARK = "ark:/99999/fk4000000011"
OTHER = "ark:/99999/fk400000002z"
OWNER, SOMEBODY = "ark:/99999/owner", "ark:/99999/somebody"
COLLECTION = "ark:/99999/collection"

TITLE = "Ferries \N{EN DASH} a history; 100% of it"


@dataclass(frozen=True)
class Entering:
    """The inventory under test."""

    given: InventoryPlace

    @cached_property
    def inventory(self) -> SqlInventory:
        return self.open()

    def open(self) -> SqlInventory:
        """The inventory as the steps of another process have it."""
        database = Database(self.given.database)
        service = self.given.service
        return SqlInventory(database) if service is None else InventoryWithService(database, service.open())

    @property
    def service(self) -> InventoryService:
        """The service as another system uses it, without our inventory."""
        return self._own.open()

    @property
    def registry(self) -> Registry:
        return self._own.registry

    @property
    def _own(self) -> OwnInventory:
        """Skips the test if there is none."""
        if self.given.service is None:
            pytest.skip("the inventory has no service beside it")
        return self.given.service

    def recording(
        self, number: int, ark: str = ARK, version: int = 1, local_id: Sequence[str] = (), **other: Any
    ) -> Recording:
        """Job `number` stored this version."""
        job = a_job(number)
        service = self.given.service
        created = AT + timedelta(days=version)
        data = f"{ark} {version}".encode()
        given: dict[str, Any] = {
            "version": StoredVersion(
                ark=ark,
                number=version,
                jid=job.jid,
                key=job.configuration.key,
                created=created,
                verified=created,
                files=(StoredFile("producer/a.txt", len(data), hashlib.sha512(data).hexdigest(), True),),
                url=f"file:///ocfl/{ark}" if service is None else service.store(ark, version),
            ),
            "mime_types": {"producer/a.txt": "text/plain"},
            "owner": OWNER,
            "collections": (COLLECTION,),
            "local_id": tuple(local_id),
            "erc": (("who", "Müller"), ("what", TITLE), ("where", ark), *(("where", i) for i in local_id)),
            "object_type": "MRT-curatorial",
            "object_role": "MRT-content",
            "aggregate_role": "MRT-none",
            "profile": job.configuration.profile_name,
            "bid": BID,
            "jid": job.jid,
            "key": job.configuration.key,
            "submitter": job.configuration.submitter,
            "payload_name": job.configuration.payload_name,
            "ingest_type": "file",
            "submitted": AT,
        }
        return Recording(**{**given, **other})

    def versions(self, ark: str = ARK) -> list[tuple[int, str]]:
        """(number, job id) of the object's versions in our inventory."""
        described = self.inventory.describe_object(ark)
        return [] if described is None else [(one.number, one.jid) for one in described.versions]

    def dies_before(self, number: int, ark: str, local_id: Sequence[str], effect: int) -> End:
        """Claim the ARK for the job and record its version in a process that dies before this effect."""
        recording = self.recording(number, ark, local_id=local_id)

        def deed() -> Callable[[], object]:
            inventory = self.open()
            return lambda: complete(inventory, number, recording)

        return deaths.before_effect(deed, effect)


def complete(inventory: SqlInventory, number: int, recording: Recording) -> None:
    """What the steps do for a new object."""
    assert inventory.claim_ark(a_job(number), recording.owner, recording.version.ark, recording.local_id)
    inventory.record(recording)
