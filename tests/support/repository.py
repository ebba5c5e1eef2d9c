"""Storage, inventory and profiles in one folder, and jobs whose files are downloaded."""

import dataclasses
import shutil
from collections.abc import Mapping
from hashlib import sha512
from pathlib import Path
from typing import Any

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.fixity import StoredVersion
from pipeline.identifiers.minter import Minter
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.sql import open_inventory
from pipeline.profiles.profile import Profiles
from pipeline.records import Identifiers, Job
from pipeline.states import JobState
from pipeline.steps import process, record
from pipeline.steps.context import StepContext
from pipeline.storage.base import Storage
from pipeline.storage.ocfl.storage import OcflStorage
from pipeline.working_storage.workspace import DownloadedFile, Workspace, read_stored
from tests.support.memory_record import MemoryJobRecord
from tests.support.records import BID, a_job, jid
from tests.support.step_context import marked_settings, services

OWNER = "ark:/99999/owner"


def empty_inventory(folder: Path) -> Path:
    """An inventory with its tables; a copy is faster than creating the tables."""
    path = folder / "inventory.sqlite"
    inventory = open_inventory(f"sqlite:///{path}")
    inventory.arks_of(OWNER, ("none",))
    inventory.database.close()
    return path


class Repository:
    """Everything that processing works on, real except for the record, which is in memory."""

    def __init__(self, home: Path, empty_inventory: Path) -> None:
        self._empty_inventory = empty_inventory
        shutil.copy(empty_inventory, home / "inventory.sqlite")
        (home / "profiles").mkdir()
        (home / "profiles" / "demo.yaml").write_text(
            f"owner: {OWNER}\ncollections: ark:/99999/collection\ngiven_arks: ark:/99999/\n"
        )
        self.settings = marked_settings(home, profiles=home / "profiles")
        self.job_record = MemoryJobRecord()
        self.ocfl = OcflStorage(self.settings.storage)
        self.storage: Storage = self.ocfl
        self.inventory = open_inventory(self.settings.inventory)

    def services(self, attempt: Attempt = UNATTENDED, profile: str = "demo") -> StepContext:
        return dataclasses.replace(
            services(self.settings, self.job_record, attempt=attempt),
            profile_of=lambda: Profiles(self.settings.profiles).get(profile),
            minter_of=lambda _: Minter(),
            storage=self.storage,
            inventory=self.inventory,
        )

    def job(self, number: int, files: Mapping[str, str | bytes] | None = None, **facts: Any) -> Job:
        """A job whose files are downloaded."""
        given = {
            "op": "attempt-1",
            "primary_id": None,
            "working_dir": str(self.settings.working / BID / jid(number)),
        }
        job = a_job(number, JobState.PROCESSING, **{**given, **facts})
        workspace = Workspace.of(job, self.settings.working)
        downloads = []
        for path, content in ({"a.txt": f"of job {number}"} if files is None else files).items():
            target = workspace.producer / path
            target.parent.mkdir(parents=True, exist_ok=True)
            data = content.encode() if isinstance(content, str) else content
            target.write_bytes(data)
            digest = sha512(data).hexdigest()
            downloads.append(DownloadedFile(path=path, size=len(data), sha512=digest, declared_by=""))
        workspace.write_downloaded(tuple(downloads))
        return job

    def work(self, job: Job, attempt: Attempt = UNATTENDED) -> StoredVersion:
        process.work(job, self.services(attempt))
        stored, _ = read_stored(Workspace.of(job, self.settings.working))
        assert stored is not None
        return stored

    def recorded(self, job: Job) -> StoredVersion:
        """The version created from a downloaded job, recorded in the inventory."""
        stored = self.work(job)
        record.work(job.model_copy(update={"identifiers": self.identifiers(job)}), self.services())
        return stored

    def described(self, ark: str) -> InventoryObject:
        found = self.inventory.describe_object(ark)
        assert found is not None
        return found

    def identifiers(self, job: Job) -> Identifiers:
        return self.job_record.identifiers(job)

    def jobs_of(self, ark: str) -> list[str | None]:
        head = self.ocfl.object(ark).head()
        return [version.jid for version in head.versions.values()] if head else []

    def text(self, stored: StoredVersion, path: str) -> str:
        folder = self.ocfl.root.object(stored.ark)
        head = self.ocfl.object(stored.ark).head()
        assert head is not None
        digest = head.versions[f"v{stored.number}"].digests()[path]
        return (folder / head.manifest[digest][0]).read_text()

    def lose_inventory(self) -> None:
        """Continue with an inventory that has no entry."""
        self.close()
        shutil.copy(self._empty_inventory, self.settings.home / "inventory.sqlite")

    def close(self) -> None:
        self.inventory.database.close()
