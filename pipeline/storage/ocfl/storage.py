"""Objects in an OCFL storage root on a disk that all workers share."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, throttled
from pipeline.files import FoundFile, StoredFile, StoredVersion
from pipeline.outcome import system
from pipeline.records import now
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl import disk, objects, reading
from pipeline.storage.ocfl.change import check, check_here, check_kept, describe, grown, unlike
from pipeline.storage.ocfl.writer import Root, forget, leftovers, publish, settle, staged, unsettled


class OcflStorage:
    def __init__(self, folder: Path, patience: float = 60) -> None:
        self.root = Root(folder)
        self.patience = patience
        """Seconds that a writer waits for another one of the same object."""

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Stage the files, checking digests; make them last; lock the object; ask `fence`; rename.

        Each of these may be the last that this process does.
        """
        check(request)
        attempt = throttled(CheckedAttempt(fence))
        try:
            self.root.open()
            with staged(self.root, request.jid) as stage:
                inventory = self._add(request, stage, attempt, fence)
        except OSError as error:
            raise disk.failure(error, self.root.folder) from error
        number = inventory.number_of(request.jid)
        assert number is not None
        return self._describe(inventory, number)

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        try:
            head = objects.read_head(self.root.object(ark))
            number = head.number_of(jid) if head else None
            return self._describe(head, number) if head and number else None
        except OSError as error:
            raise disk.failure(error, self.root.folder) from error

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        try:
            return reading.read(self.root, ark, path, number)
        except OSError as error:
            raise disk.failure(error, self.root.folder) from error

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Files of earlier versions are looked for, not read: so the cost is that of what was added."""
        attempt = throttled(attempt)
        folder = self.root.object(version.ark)
        name = f"v{version.number}"
        try:
            inventory = objects.read_version(folder / name)
            check_kept(version, inventory, objects.read_head(folder), str(folder))
            for file in version.files:
                self._verify(folder / inventory.manifest[file.sha512][0], file, attempt)
                attempt.check()
        except OSError as error:
            raise disk.failure(error, self.root.folder) from error

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """What a stopped writer left is settled first: it may hold what is to be deleted."""
        check(request)
        try:
            self.root.open()
            with staged(self.root, request.jid) as stage:
                head = self._head(request, stage, throttled(attempt))
        except OSError as error:
            raise disk.failure(error, self.root.folder) from error
        if not (head and head.number_of(request.jid)):
            grown(request, head)

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: Callable[[int], None] = lambda _: None,
    ) -> Iterator[FoundFile]:
        check_here(ark, url, "file:", str(self.root.folder))
        for each in reading.read_back(self.root, ark, numbers, on_read):
            yield FoundFile(each.number, each.path, now(), each.size, each.sha512, each.problem, each.place)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        left = tuple(jid for jid in leftovers(self.root) if ended(jid))
        for jid in left:
            forget(self.root, jid)
        return left

    def _add(
        self, request: StoreRequest, stage: Path, attempt: Attempt, fence: Callable[[], None]
    ) -> objects.Inventory:
        head = self._head(request, stage, attempt)
        if head and head.number_of(request.jid):
            return head
        grown(request, head)
        self._stage(request, head, stage, attempt)
        attempt.check()
        with self._lock(request.ark, attempt):
            head = settle(self.root, request.ark, stage)
            if head and head.number_of(request.jid):
                return head
            inventory = grown(request, head)
            publish(self.root, request.ark, inventory, stage, fence)
            return inventory

    def _head(self, request: StoreRequest, stage: Path, attempt: Attempt) -> objects.Inventory | None:
        folder = self.root.object(request.ark)
        head = objects.read_head(folder)
        if head and unsettled(folder, head):
            with self._lock(request.ark, attempt):
                head = settle(self.root, request.ark, stage)
        return head

    def _stage(
        self, request: StoreRequest, head: objects.Inventory | None, stage: Path, attempt: Attempt
    ) -> None:
        """Copy what the object does not hold yet; what it holds is read, since ours will be thrown away."""
        folder = self.root.object(request.ark)
        held = head.manifest if head else {}
        kept = objects.first_paths({file.path: file.sha512 for file in request.files})
        for file in request.files:
            if file.sha512 in held:
                earlier = folder / held[file.sha512][0]
                found = disk.digest(earlier, attempt)
                if found != (file.size, file.sha512):
                    raise system(f"{earlier} is damaged: {unlike(file, found)}; restore it, then resume")
            elif kept[file.sha512] == file.path:
                found = disk.copy(file.source, stage / objects.CONTENT / file.path, attempt)
                if found != (file.size, file.sha512):
                    raise system(
                        f"{file.source} is not what was downloaded: {unlike(file, found)}; "
                        "delete the job and submit it again"
                    )
            attempt.check()
        if (stage / objects.CONTENT).exists():
            disk.sync_tree(stage)

    def _lock(self, ark: str, attempt: Attempt) -> AbstractContextManager[None]:
        return disk.locked(self.root.lock(ark), ark, self.patience, attempt)

    def _verify(self, path: Path, file: StoredFile, attempt: Attempt) -> None:
        if not file.added:
            if path.stat().st_size != file.size:
                raise system(f"{path} is damaged: it has {path.stat().st_size} bytes, not {file.size}")
            return
        found = disk.digest(path, attempt)
        if found != (file.size, file.sha512):
            raise system(f"{path} is damaged: {unlike(file, found)}")

    def _describe(self, inventory: objects.Inventory, number: int) -> StoredVersion:
        folder = self.root.object(inventory.id)
        return describe(
            inventory, number, lambda place: (folder / place).stat().st_size, (folder / f"v{number}").as_uri()
        )
