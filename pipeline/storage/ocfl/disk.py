"""Files of the OCFL store: reads the folder of an object, names faults of the root, locks an object."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.file_system import fault_message, is_fault_of, is_full, read_all, write_all, written
from pipeline.fixity import READ_CHUNK, OnRead
from pipeline.outcome import Service, ServiceDown, StepFailed, damaged, of_object, system
from pipeline.storage.ocfl.copies import read_back
from pipeline.storage.ocfl.objects import INVENTORY, Inventory, extends, parse
from pipeline.storage.ocfl.stored_object import StoredObject

LOCK_POLL = 0.05
"""Seconds between two tries for the lock of an object."""

_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@contextmanager
def failures(root: Path) -> Iterator[None]:
    """ServiceDown if the root's file system is at fault or full; other errors of it as StepFailed.

    A fault of another file system, that of the files to be stored, stays what it is.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        elsewhere = isinstance(name, str) and not Path(name).is_relative_to(root)
        if elsewhere and is_fault_of(error, root):
            raise
        if is_full(error) or is_fault_of(error, root):
            message = fault_message("the storage root", root, error)
            raise ServiceDown(Service.STORAGE, message, of_host=True) from error
        raise system(f"{error.filename or root}: {error.strerror or error}") from error


@dataclass(frozen=True)
class ObjectFolder(StoredObject):
    folder: Path

    def location(self, path: str) -> str:
        return str(self.folder / path)

    def version_url(self, number: int) -> str:
        return (self.folder / f"v{number}").as_uri()

    def head(self) -> Inventory | None:
        """A writer replaces inventory and sidecar one after the other, atomically."""
        data = self.read(INVENTORY)
        if data is None and self.folder.exists():
            # The object may have appeared, complete, between the two calls.
            data = self.read(INVENTORY)
            if data is None:
                raise damaged(f"{self.folder} has no {INVENTORY}: it is not an OCFL object")
        return parse(data, f"{self.folder}/{INVENTORY}") if data is not None else None

    def latest(self) -> Inventory | None:
        """The head, or the complete version after it that a stopped writer left and the next will publish."""
        head = self.head()
        if head is None:
            return None
        with suppress(StepFailed):
            ahead = self.inventory_of(f"v{head.number + 1}")
            return ahead if extends(ahead, head) else head
        return head

    def read(self, path: str) -> bytes | None:
        return read_if_present(f"{self.folder}/{path}")

    def size(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return (self.folder / path).stat().st_size
        return None

    def pieces(self, path: str) -> Iterator[bytes] | None:
        try:
            descriptor = os.open(self.folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return _pieces(descriptor)

    def digest(self, path: str, on_read: OnRead) -> tuple[int, str] | None:
        with suppress(FileNotFoundError):
            return read_back(self.folder / path, on_read)
        return None


def _pieces(descriptor: int) -> Iterator[bytes]:
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while piece := stream.read(READ_CHUNK):
            yield piece


def read_if_present(path: Path | str) -> bytes | None:
    try:
        return read_all(path)
    except FileNotFoundError:
        return None


def create(path: Path | str, data: bytes) -> int:
    """Create a file with this content; its descriptor, which the caller closes.

    The file is durable once the caller has synced the file and its folder.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    return written(descriptor, partial(write_all, data=data))


@contextmanager
def writing() -> Iterator[Callable[[Path, bytes], int]]:
    """A function that writes a new file, which is open until the end of the block; returns its descriptor."""
    with ExitStack() as stack:

        def write(path: Path, data: bytes) -> int:
            descriptor = create(path, data)
            stack.callback(os.close, descriptor)
            return descriptor

        yield write


@contextmanager
def locked(path: Path, what: str, lock_wait: float, attempt: Attempt) -> Iterator[None]:
    """Hold the kernel's lock on a file; the file exists only while a process holds or waits for the lock.

    Unlike a lock in ZooKeeper, this lock does not end with a session: a process that is paused between its
    last check and the rename still holds the lock, so no other process can publish. The lock ends with the
    process. Later after `lock_wait` seconds.
    """
    deadline = time.monotonic() + lock_wait
    while (descriptor := _try_lock(path)) is None:
        attempt.check()
        if time.monotonic() > deadline:
            raise of_object(what, f"another process has been writing {what} for more than {lock_wait:g} s")
        time.sleep(LOCK_POLL)
    try:
        yield
    finally:
        try:
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    try:
        descriptor = os.open(path, _LOCK, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, _LOCK, 0o644)
    try:
        # FileNotFoundError: the previous holder may remove the file after we open it, and another process may
        # make a new one. Then this lock excludes nobody.
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
