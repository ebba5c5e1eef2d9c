"""Objects in an OCFL storage root on a disk that all workers share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, throttled
from pipeline.deployment import Expected
from pipeline.files import StoredVersion
from pipeline.outcome import ServiceDown, StepFailed, transient
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl import disk, layout, objects, writer
from pipeline.storage.ocfl.reading import OcflReader
from pipeline.storage.rules import check_request, check_source, stored_elsewhere


class OcflStorage(OcflReader):
    def __init__(self, folder: Path, lock_wait: float = 60, expected: Expected | None = None) -> None:
        self.expected = expected
        self.root = writer.Root(folder)
        self.lock_wait = lock_wait
        """Seconds that a writer waits for another writer of the same object."""

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """Repairs the object first: an unfinished version may have the files that are to be deleted."""
        check_request(request)
        self.confirm()
        with self.failures():
            self.root.open()
            with writer.staged(self.root, request.jid) as stage:
                head = self._repaired_head(request.ark, stage, throttled(attempt))
        if not (head and head.number_of(request.jid, request.key)):
            objects.next_inventory(head, request)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Stage the files and check their digests; sync them; lock the object; call `fence`; rename.

        The process may stop after any of these steps.
        """
        check_request(request)
        self.confirm()

        def last_check() -> None:
            self.confirm()
            fence()

        with self.failures():
            self.root.open()
            with writer.staged(self.root, request.jid) as stage:
                inventory = self._add(request, stage, throttled(CheckedAttempt(fence)), last_check)
            number = inventory.number_of(request.jid, request.key)
            assert number is not None
            return self.object(request.ark).describe(inventory, number)

    def distinguishes_case(self) -> bool:
        """Asked of the file system by another spelling of the root's declaration."""
        with self.failures():
            return not (self.root.folder / layout.DECLARATION.swapcase()).exists()

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        return writer.remove_ended(self.root, ended)

    @property
    def place(self) -> str:
        return str(self.root.folder)

    def inventories(self) -> Iterator[tuple[str, objects.Inventory | StepFailed]]:
        """Folders are read one at a time: a root may have a million objects."""
        for folder in writer.object_folders(self.root):
            try:
                inventory = disk.ObjectFolder(folder).head()
            except ServiceDown:
                raise
            except StepFailed as fault:
                yield str(folder), fault
                continue
            if inventory is not None:
                yield str(folder), inventory

    def read_root_file(self, path: str) -> bytes | None:
        return disk.read_if_present(self.root.folder / path)

    def write_root_file(self, path: str, data: bytes) -> None:
        self.root.open()
        self.root.staging.mkdir(parents=True, exist_ok=True)  # an earlier release may not have left it
        writer.replace(self.root.folder / path, data, self.root.staging)

    def object(self, ark: str) -> disk.ObjectFolder:
        return disk.ObjectFolder(self.root.object(ark))

    def failures(self) -> AbstractContextManager[None]:
        return disk.failures(self.root.folder)

    def check_readable(self, ark: str, url: str) -> None:
        if not url.startswith("file:"):
            raise stored_elsewhere(ark, url, f"the OCFL root {self.root.folder}")
        if not (self.root.folder / layout.DECLARATION).is_file():
            raise transient(
                f"{self.root.folder} is not an OCFL storage root: mount its disk on this host, and set "
                "ARKLINE_STORAGE_ROOT as for the workers"
            )

    def _add(
        self, request: StoreRequest, stage: Path, attempt: Attempt, fence: Callable[[], None]
    ) -> objects.Inventory:
        head = self._repaired_head(request.ark, stage, attempt)
        if head and head.number_of(request.jid, request.key):
            return head
        objects.next_inventory(head, request)
        self._stage(request, head, stage, attempt)
        attempt.check()
        with self._lock(request.ark, attempt):
            head = writer.repair(self.root, request.ark, stage)
            if head and head.number_of(request.jid, request.key):
                return head
            inventory = objects.next_inventory(head, request)
            writer.publish(self.root, request.ark, inventory, stage, fence)
            return inventory

    def _repaired_head(self, ark: str, stage: Path, attempt: Attempt) -> objects.Inventory | None:
        stored = self.object(ark)
        head = stored.head()
        if head and writer.needs_repair(stored, head):
            with self._lock(ark, attempt):
                head = writer.repair(self.root, ark, stage)
        return head

    def _stage(
        self, request: StoreRequest, head: objects.Inventory | None, stage: Path, attempt: Attempt
    ) -> None:
        """Copy new content; read content that the object has already, because our copy will be deleted."""
        stored = self.object(request.ark)
        manifest = head.manifest if head else {}
        first_paths = objects.first_paths(request.digests)
        for file in request.files:
            if file.sha512 in manifest:
                stored.compare_bytes(manifest[file.sha512][0], file, attempt)
            elif first_paths[file.sha512] == file.path:
                actual = disk.copy(file.source, stage / objects.CONTENT / file.path, attempt)
                check_source(file, actual)
            attempt.check()
        if (stage / objects.CONTENT).exists():
            disk.sync_tree(stage)

    def _lock(self, ark: str, attempt: Attempt) -> AbstractContextManager[None]:
        return disk.locked(self.root.lock(ark), ark, self.lock_wait, attempt)
