"""Objects in an OCFL storage root on a disk that all workers share."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, in_parallel, throttled
from pipeline.deployment import Expected
from pipeline.file_system import SYNC_ONE_BY_ONE, make_synced, sync_all, sync_tree
from pipeline.fixity import ContentFile, StoredVersion
from pipeline.outcome import ServiceDown, StepFailed, transient
from pipeline.records import now
from pipeline.storage.base import (
    StoreRequest,
    check_request,
    check_source,
    describe_mismatch,
    stored_elsewhere,
)
from pipeline.storage.ocfl import disk, objects, writer
from pipeline.storage.ocfl.reading import OcflReader

READERS = 4
"""Threads that read copies back, so that the disk has several requests at a time."""

TOGETHER = 32
"""Copies that a thread has open, and prefetches from the disk, at a time."""


class OcflStorage(OcflReader):
    def __init__(self, folder: Path, lock_wait: float = 60, expected: Expected | None = None) -> None:
        self.expected = expected
        self.root = writer.Root(folder)
        self.lock_wait = lock_wait
        """Seconds that a writer waits for another writer of the same object."""

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        """Repairs the object first, since an unfinished version may have the files to be deleted."""
        check_request(request)
        self.confirm()
        with self.failures():
            self.root.open()
            stored = self.object(request.ark)
            head = stored.head()
            if head and writer.needs_repair(stored, head):
                with writer.staged(self.root, request.jid) as stage:
                    head = self._repaired_head(request.ark, stage, throttled(attempt))
        if not (head and head.number_of(request.jid, request.key)):
            objects.next_inventory(head, request)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Stage the files, sync them and read them back; lock the object; call `fence`; rename.

        The process may stop after any of these steps. A version published by another attempt is not read
        back here.
        """
        check_request(request)
        self.confirm()

        def last_check() -> None:
            self.confirm()
            fence()

        with self.failures():
            self.root.open()
            with writer.staged(self.root, request.jid) as stage:
                inventory, published = self._add(request, stage, throttled(CheckedAttempt(fence)), last_check)
            number = inventory.number_of(request.jid, request.key)
            assert number is not None
            stored = self.object(request.ark)
            if published is None:
                return stored.describe(inventory, number)
            version = stored.describe(inventory, number, {file.sha512: file.size for file in request.files})
            if not stored.has_inventories(number, published):  # the next version may already exist
                self.check_inventories(version)
            return replace(version, verified=now())

    def distinguishes_case(self) -> bool:
        """Determined by looking up the root's declaration with its case swapped."""
        with self.failures():
            return not (self.root.folder / objects.DECLARATION.swapcase()).exists()

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        return writer.remove_ended(self.root, ended)

    @property
    def place(self) -> str:
        return str(self.root.folder)

    def inventories(self) -> Iterator[tuple[str, objects.Inventory | StepFailed]]:
        """Reads one folder at a time, because a root may have a million objects."""
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
        return disk.read_if_present(f"{self.root.folder}/{path}")

    def add_root_file(self, path: str, data: bytes) -> None:
        self.root.open()
        make_synced(self.root.staging)  # an earlier release may not have left it
        writer.add(self.root.folder / path, data, self.root.staging)

    def object(self, ark: str) -> disk.ObjectFolder:
        return disk.ObjectFolder(self.root.object(ark))

    def failures(self) -> AbstractContextManager[None]:
        return disk.failures(self.root.folder)

    def check_readable(self, ark: str, url: str) -> None:
        if not url.startswith("file:"):
            raise stored_elsewhere(ark, url, f"the OCFL root {self.root.folder}")
        if not (self.root.folder / objects.DECLARATION).is_file():
            raise transient(
                f"{self.root.folder} is not an OCFL storage root: mount its disk on this host, and set "
                "ARKLINE_STORAGE_ROOT as for the workers"
            )

    def _add(
        self, request: StoreRequest, stage: Path, attempt: Attempt, fence: Callable[[], None]
    ) -> tuple[objects.Inventory, bytes | None]:
        """The inventory with the version, and its bytes if this call published it; else None."""
        head = self._repaired_head(request.ark, stage, attempt)
        if head and head.number_of(request.jid, request.key):
            return head, None
        objects.next_inventory(head, request)
        self._stage(request, head, stage, attempt)
        attempt.check()
        with self._lock(request.ark, attempt):
            staged_for, head = head, writer.repair(self.root, request.ark, stage)
            if head and head.number_of(request.jid, request.key):
                return head, None
            inventory = objects.next_inventory(head, request)
            if head != staged_for:
                writer.prune(writer.content_in(stage), inventory)
            return inventory, writer.publish(self.root, request.ark, inventory, stage, fence)

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
        """Copy new content, sync it and read it back from the disk, before the version becomes visible.

        Content that the object already has is also read back, because the working copy will be deleted.
        """
        stored, content = self.object(request.ark), str(writer.content_in(stage))
        writer.content_in(stage).parent.mkdir()
        manifest = head.manifest if head else {}
        first_paths = objects.first_paths(request.digests)
        # a small version's files stay open until they are read back
        few = len(request.files) <= SYNC_ONE_BY_ONE
        copied: list[ContentFile] = []
        large: list[str] = []
        open_copies: dict[str, int] = {}
        folders: set[str] = set()
        with ExitStack() as stack:
            for file in request.files:
                if file.sha512 in manifest:
                    stored.compare_bytes(manifest[file.sha512][0], file, attempt)
                elif first_paths[file.sha512] == file.path:
                    target = f"{content}/{file.path}"
                    _make_folder(target.rpartition("/")[0], content, folders)
                    if file.data is None and file.size > disk.COPY_CHUNK:
                        actual = disk.copy_and_read_back(file.source, target, attempt)
                        _compare(file, actual, content, attempt)
                        large.append(target)
                    else:
                        descriptor = disk.put(file, target, attempt)
                        copied.append(file)
                        if few:
                            open_copies[file.path] = descriptor
                            stack.callback(os.close, descriptor)
                        else:
                            os.close(descriptor)
                attempt.check()
            if not folders:
                return
            if few:
                sync_all([*large, *sorted(folders)], list(open_copies.values()))
            else:
                sync_tree(Path(content))
            _read_back(copied, open_copies, content, attempt)

    def _lock(self, ark: str, attempt: Attempt) -> AbstractContextManager[None]:
        return disk.locked(self.root.lock(ark), ark, self.lock_wait, attempt)


def _make_folder(folder: str, content: str, existing: set[str]) -> None:
    """Make `folder`, which is `content` or below, and its parents up to `content`, unless `existing`."""
    if folder in existing:
        return
    if folder != content:
        _make_folder(folder.rpartition("/")[0], content, existing)
    os.mkdir(folder)  # noqa: PTH102 - runs in every job
    existing.add(folder)


def _read_back(
    files: Sequence[ContentFile], open_copies: Mapping[str, int], content: str, attempt: Attempt
) -> None:
    """StepFailed unless the files' copies on the disk have the right bytes.

    One thread prefetches small files together, so that the next one is in memory when it is read.
    `open_copies`: path -> descriptor of the copy, for all files or for none.
    """

    def compare_some(files: Sequence[ContentFile], attempt: Attempt) -> None:
        for start in range(0, len(files), TOGETHER):
            some = files[start : start + TOGETHER]
            if open_copies:
                descriptors = [open_copies[file.path] for file in some]
                actuals = disk.read_open_back(descriptors, lambda _: attempt.check())
            else:
                paths = [f"{content}/{file.path}" for file in some]
                actuals = disk.read_all_back(paths, lambda _: attempt.check())
            for file, actual in zip(some, actuals, strict=True):
                _compare(file, actual, content, attempt)

    small = [file for file in files if file.size <= disk.REQUESTED_AHEAD]
    large = [file for file in files if file.size > disk.REQUESTED_AHEAD]
    some = [
        *(large[start::READERS] for start in range(min(READERS, len(large)))),
        *([small] if small else []),
    ]
    with closing(in_parallel(compare_some, some, READERS, attempt)) as outcomes:
        for _, outcome in outcomes:
            outcome.result()


def _compare(file: ContentFile, actual: tuple[int, str], content: str, attempt: Attempt) -> None:
    """StepFailed unless the copy in `content` has the file's size and sha512."""
    if actual == (file.size, file.sha512):
        return
    if file.data is None:
        check_source(file, disk.read_back(file.source, lambda _: attempt.check()))
    raise transient(
        f"the copy of {file.source} in {content} was read back from the disk with other bytes: "
        f"{describe_mismatch(file, actual)}; if that happens again, check the disk of storage"
    )
