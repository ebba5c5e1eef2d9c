"""Objects in an OCFL storage root on a disk that all workers share."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, throttled
from pipeline.files import ReadBackFile, StoredVersion
from pipeline.outcome import StepFailed, transient
from pipeline.storage.base import OnRead, StoreRequest, ignore
from pipeline.storage.ocfl import disk, objects, reading
from pipeline.storage.ocfl.writer import (
    Root,
    needs_repair,
    publish,
    remove_staged,
    repair,
    staged,
    staged_jobs,
)
from pipeline.storage.rules import changed_source, check_request, stored_elsewhere


class OcflStorage:
    def __init__(self, folder: Path, lock_wait: float = 60) -> None:
        self.root = Root(folder)
        self.lock_wait = lock_wait
        """Seconds that a writer waits for another writer of the same object."""

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """Repairs the object first: an unfinished version may have the files that are to be deleted."""
        check_request(request)
        with disk.failures(self.root.folder):
            self.root.open()
            with staged(self.root, request.jid) as stage:
                head = self._repaired_head(request, stage, throttled(attempt))
        if not (head and head.number_of(request.jid)):
            objects.next_inventory(head, request)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Stage the files and check their digests; sync them; lock the object; call `fence`; rename.

        The process may stop after any of these steps.
        """
        check_request(request)
        with disk.failures(self.root.folder):
            self.root.open()
            with staged(self.root, request.jid) as stage:
                inventory = self._add(request, stage, throttled(CheckedAttempt(fence)), fence)
            number = inventory.number_of(request.jid)
            assert number is not None
            return self._describe(inventory, number)

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        with disk.failures(self.root.folder):
            head = objects.read_head(self.root.object(ark))
            number = head.number_of(jid) if head else None
            return self._describe(head, number) if head and number else None

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        with disk.failures(self.root.folder):
            stored = disk.ObjectFolder(self.root.object(ark))
            return reading.read_file(stored, _latest(stored), path, number)

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        stored = disk.ObjectFolder(self.root.object(version.ark))
        checked = throttled(attempt)
        with disk.failures(self.root.folder):
            inventory = reading.read_version(stored, f"v{version.number}")
            reading.check_stored(version, inventory, objects.read_head(stored.folder))
            for file in version.files:
                reading.verify_file(stored, inventory, file, checked)
                checked.check()

    def read_back(
        self, ark: str, url: str, numbers: Collection[int] = (), on_read: OnRead = ignore
    ) -> Iterator[ReadBackFile]:
        if not url.startswith("file:"):
            raise stored_elsewhere(ark, url, f"the OCFL root {self.root.folder}")
        if not (self.root.folder / objects.ROOT_DECLARATION[0]).is_file():
            raise transient(
                f"{self.root.folder} is not an OCFL storage root: mount its disk on this host, and set "
                "ARKLINE_STORAGE_ROOT as for the workers"
            )
        stored = disk.ObjectFolder(self.root.object(ark))
        yield from reading.read_back(stored, objects.read_head(stored.folder), numbers, on_read)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        jobs = tuple(jid for jid in staged_jobs(self.root) if ended(jid))
        for jid in jobs:
            remove_staged(self.root, jid)
        return jobs

    def _add(
        self, request: StoreRequest, stage: Path, attempt: Attempt, fence: Callable[[], None]
    ) -> objects.Inventory:
        head = self._repaired_head(request, stage, attempt)
        if head and head.number_of(request.jid):
            return head
        objects.next_inventory(head, request)
        self._stage(request, head, stage, attempt)
        attempt.check()
        with self._lock(request.ark, attempt):
            head = repair(self.root, request.ark, stage)
            if head and head.number_of(request.jid):
                return head
            inventory = objects.next_inventory(head, request)
            publish(self.root, request.ark, inventory, stage, fence)
            return inventory

    def _repaired_head(
        self, request: StoreRequest, stage: Path, attempt: Attempt
    ) -> objects.Inventory | None:
        folder = self.root.object(request.ark)
        head = objects.read_head(folder)
        if head and needs_repair(folder, head):
            with self._lock(request.ark, attempt):
                head = repair(self.root, request.ark, stage)
        return head

    def _stage(
        self, request: StoreRequest, head: objects.Inventory | None, stage: Path, attempt: Attempt
    ) -> None:
        """Copy new content; read content that the object has already, because our copy will be deleted."""
        stored = disk.ObjectFolder(self.root.object(request.ark))
        manifest = head.manifest if head else {}
        first_paths = objects.first_paths(request.digests)
        for file in request.files:
            if file.sha512 in manifest:
                reading.compare_bytes(stored, manifest[file.sha512][0], file, attempt)
            elif first_paths[file.sha512] == file.path:
                actual = disk.copy(file.source, stage / objects.CONTENT / file.path, attempt)
                if actual != (file.size, file.sha512):
                    raise changed_source(file, actual)
            attempt.check()
        if (stage / objects.CONTENT).exists():
            disk.sync_tree(stage)

    def _lock(self, ark: str, attempt: Attempt) -> AbstractContextManager[None]:
        return disk.locked(self.root.lock(ark), ark, self.lock_wait, attempt)

    def _describe(self, inventory: objects.Inventory, number: int) -> StoredVersion:
        folder = self.root.object(inventory.id)
        return reading.describe(
            disk.ObjectFolder(folder), inventory, number, (folder / f"v{number}").as_uri()
        )


def _latest(stored: disk.ObjectFolder) -> objects.Inventory | None:
    """The head, or the complete version after it that a stopped writer left and the next one will publish."""
    head = objects.read_head(stored.folder)
    if head is None:
        return None
    with suppress(StepFailed):
        ahead = reading.read_version(stored, f"v{head.number + 1}")
        return ahead if objects.extends(ahead, head) else head
    return head
