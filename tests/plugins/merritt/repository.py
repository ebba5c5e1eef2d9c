"""A repository with the Merritt storage service as its storage."""

import dataclasses
from typing import Any

import pytest

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.fixity import StoredVersion
from pipeline.inventory.database import Database
from pipeline.inventory.service import InventoryWithService
from pipeline.outcome import StepFailed
from pipeline.records import Job, SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import process
from plugins.merritt.inventory import MerrittInventory
from plugins.merritt.settings import MerrittSettings
from plugins.merritt.storage import MerrittStorage
from tests.servers.merritt import Merritt
from tests.support.records import jid
from tests.support.repository import Repository

ARK = "ark:/99999/given"
HERE = ("7777", ARK)


class MerrittRepository(Repository):
    """A repository with the storage service on the same disk as its storage."""

    service: Merritt

    def keep(self, service: Merritt, **settings: Any) -> None:
        self.service = service
        self.settings = self.settings.model_copy(update={"read_timeout": 5})
        given = {"storage_service_url": service.url, "storage_service_node": 7777}
        self.own = MerrittSettings(**{**given, **settings})
        self.kept = MerrittStorage(self.settings, self.own, pause=0.01)

    def inventory_with_service(self) -> InventoryWithService:
        service = MerrittInventory(self.settings, self.own, pause=0.01)
        return InventoryWithService(Database(self.settings.inventory), service)

    def process(self, job: Job, attempt: Attempt = UNATTENDED) -> str | None:
        return process.work(job, dataclasses.replace(self.services(attempt), storage=self.kept)).message

    def submitted(self, number: int, mode: SubmissionMode, files: dict[str, str], **facts: Any) -> Job:
        return self.job(number, files, **{"primary_id": ARK, "submission_mode": mode, **facts})

    def version(self, number: int) -> StoredVersion:
        """The version that a job created."""
        found = self.kept.version_of(ARK, jid(number))
        assert found is not None
        return found

    def producer(self, version: int, where: tuple[str, str] = HERE) -> dict[str, bytes]:
        """The depositor's files of a version, as the service stores them."""
        files = self.service.objects[where][version - 1]
        return {
            path.removeprefix("producer/"): held.data
            for path, held in files.items()
            if path.startswith("producer/")
        }


def refused(repository: MerrittRepository, job: Job, kind: FailureKind, says: str) -> StepFailed:
    with pytest.raises(StepFailed, match=says) as failed:
        repository.process(job)
    assert failed.value.kind is kind
    return failed.value
