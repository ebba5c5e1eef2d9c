"""Files of the OCFL store on disk: copying and reading back, the folder of an object, its lock, and faults.

A copy is complete when its bytes have been synced and read back from the disk, not from the page cache.
"""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.file_system import (
    fault_message,
    is_fault_of,
    is_full,
    opened,
    read_all,
    start_writing,
    write_all,
    written,
)
from pipeline.fixity import READ_CHUNK, ContentFile, OnRead, ignore
from pipeline.outcome import Service, ServiceDown, StepFailed, damaged, of_object, system
from pipeline.storage.ocfl.objects import (
    INVENTORY,
    OBJECT_DECLARATION,
    SIDECAR,
    Inventory,
    StoredObject,
    extends,
    parse,
)

COPY_CHUNK = 32 << 20
"""Bytes copied between two checks of the attempt; a disk needs less than a second for them."""

READ_ONLY = 0o444

REQUESTED_AHEAD = 128 << 10
"""Bytes of a file that are prefetched from the disk: as many as Linux reads ahead."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_OF_OCFL = ("logs", "extensions")
"""Folders that OCFL allows in an object, with any content."""

_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def put(file: ContentFile, target: str, attempt: Attempt) -> int:
    """Write a new file with the content of `file`, which the caller syncs, reads back and closes."""
    if file.data is not None:
        return written(os.open(target, _NEW, READ_ONLY), partial(write_all, data=file.data))
    with opened(file.source, os.O_RDONLY | os.O_NOFOLLOW) as reader:
        copy = partial(_copy, reader, size=file.size, attempt=attempt)
        return written(os.open(target, _NEW, READ_ONLY), copy)


def _copy(reader: int, writer: int, size: int, attempt: Attempt) -> None:
    """Copy until the end or `size` bytes; a file of another size is detected by the copy's digest."""
    copied = 0
    while copied != size and (some := _copy_some(reader, writer, min(COPY_CHUNK, size + 1 - copied))):
        copied += some
        if some == COPY_CHUNK:
            start_writing(writer)
            attempt.check()


def copy_and_read_back(source: Path, target: str, attempt: Attempt) -> tuple[int, str]:
    """Copy a large file; returns the copy's size and sha512, read back from the disk.

    A thread reads the previous chunk from the disk while the next chunk is copied and synced. The caller must
    still sync the copy and its folder, for their metadata.
    """
    size, sha512 = 0, hashlib.sha512()
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW) as reader,
        opened(target, _NEW, READ_ONLY) as writer,
        ThreadPoolExecutor(1) as thread,
    ):
        reading: Future[None] | None = None
        while copied := _copy_chunk(reader, writer):
            _sync_bytes(writer)
            attempt.check()
            if reading:
                reading.result()
            _drop_from_memory(writer, size, copied)
            reading = thread.submit(_read, writer, size, copied, sha512.update, ignore)
            size += copied
        if reading:
            reading.result()
        return os.fstat(writer).st_size, sha512.hexdigest()


def read_back(path: Path, on_read: OnRead) -> tuple[int, str]:
    """Size and sha512 of a synced file, read from the disk and not from the page cache."""
    return read_all_back([str(path)], on_read)[0]


def read_all_back(paths: Sequence[str], on_read: OnRead) -> list[tuple[int, str]]:
    """Sizes and sha512 of synced files, read from the disk and not from the page cache.

    All are open at the same time, and their beginnings are prefetched before the first is read.
    """
    with ExitStack() as stack:
        descriptors = []
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
        return read_open_back(descriptors, on_read)


def read_open_back(descriptors: Sequence[int], on_read: OnRead) -> list[tuple[int, str]]:
    """Like `read_all_back`, for files that are already open."""
    for descriptor in descriptors:
        _drop_from_memory(descriptor, 0, 0)
        if len(descriptors) > 1:
            _request_from_disk(descriptor)
    return [_size_and_sha512(descriptor, on_read) for descriptor in descriptors]


def _size_and_sha512(descriptor: int, on_read: OnRead) -> tuple[int, str]:
    size, sha512 = os.fstat(descriptor).st_size, hashlib.sha512()
    _read(descriptor, 0, size, sha512.update, on_read)
    return size, sha512.hexdigest()


def _drop_from_memory(descriptor: int, start: int, length: int) -> None:
    """Drop the pages from the cache, so that the next read comes from the disk; length 0 means to the end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def _request_from_disk(descriptor: int) -> None:
    """Start prefetching from the disk; returns immediately."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, REQUESTED_AHEAD, os.POSIX_FADV_WILLNEED)


def _copy_chunk(reader: int, writer: int) -> int:
    """Copy COPY_CHUNK bytes, or the rest of the file: only whole pages of memory can be dropped."""
    copied = 0
    while copied < COPY_CHUNK and (some := _copy_some(reader, writer, COPY_CHUNK - copied)):
        copied += some
    return copied


def _copy_some(reader: int, writer: int, most: int) -> int:
    """Copy in the kernel, which is free where the file system can share blocks. Never makes a hard link:
    later changes in the working directory must not change stored content.
    """
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(reader, writer, most)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
    data = os.read(reader, most)
    write_all(writer, data)
    return len(data)


def _sync_bytes(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:  # macOS
        os.fsync(descriptor)


def _read(
    descriptor: int, start: int, length: int, update: Callable[[memoryview], None], on_read: OnRead
) -> None:
    """Read `length` bytes, fewer if the file ends earlier."""
    view = memoryview(bytearray(min(READ_CHUNK, length)))  # unused memory costs time, too
    end = start + length
    while start < end and (size := os.preadv(descriptor, [view[: end - start]], start)):
        update(view[:size])
        on_read(size)
        start += size


LOCK_POLL = 0.05
"""Seconds between two tries to acquire an object's lock."""

_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@contextmanager
def failures(root: Path) -> Iterator[None]:
    """Raise ServiceDown if the root's file system is at fault or full; raise its other errors as StepFailed.

    A fault of another file system, that of the files to be stored, is not translated.
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
        """The object's inventory; a writer replaces inventory and sidecar one after the other, atomically."""
        data = self.read(INVENTORY)
        if data is None and self.folder.exists():
            # The object may have appeared, complete, between the two calls.
            data = self.read(INVENTORY)
            if data is None:
                raise damaged(f"{self.folder} has no {INVENTORY}: it is not an OCFL object")
        return parse(data, f"{self.folder}/{INVENTORY}") if data is not None else None

    def latest(self) -> Inventory | None:
        """The head, or the complete next version of a stopped writer, which the next writer will publish."""
        head = self.head()
        if head is None:
            return None
        with suppress(StepFailed):
            ahead = self.inventory_of(f"v{head.number + 1}")
            return ahead if extends(ahead, head) else head
        return head

    def unlisted(self) -> Iterator[str]:
        latest = self.latest()
        if latest is None:
            return
        named = {path for paths in latest.manifest.values() for path in paths}
        described = {INVENTORY, SIDECAR}
        yield from self._others("", described | {OBJECT_DECLARATION[0], *_OF_OCFL, *latest.versions})
        for name in latest.versions:
            yield from self._others(f"{name}/", described | {latest.content_directory})
            content = self.folder / name / latest.content_directory
            for folder, folders, files in os.walk(content, onerror=_raise_unless_missing):
                inside = Path(folder).relative_to(self.folder)
                if not folders and not files:
                    yield str(inside)
                yield from (path for path in (f"{inside}/{file}" for file in files) if path not in named)

    def _others(self, start: str, allowed: Collection[str]) -> Iterator[str]:
        """The entries of a folder of the object that are not allowed; NFS keeps `.nfs...` for open files."""
        with suppress(FileNotFoundError):
            for path in (self.folder / start).iterdir():
                if path.name not in allowed and not path.name.startswith(".nfs"):
                    yield f"{start}{path.name}"

    def read(self, path: str) -> bytes | None:
        return read_if_present(f"{self.folder}/{path}")

    def size(self, path: str) -> int | None:
        with suppress(FileNotFoundError):
            return (self.folder / path).stat().st_size
        return None

    def pieces(self, path: str, start: int = 0) -> Iterator[bytes] | None:
        try:
            descriptor = os.open(f"{self.folder}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return _pieces(descriptor, start)

    def digest(self, path: str, on_read: OnRead) -> tuple[int, str] | None:
        with suppress(FileNotFoundError):
            return read_back(self.folder / path, on_read)
        return None


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _pieces(descriptor: int, start: int) -> Iterator[bytes]:
    try:
        if start:
            os.lseek(descriptor, start, os.SEEK_SET)
        while piece := os.read(descriptor, READ_CHUNK):
            yield piece
    finally:
        os.close(descriptor)


def read_if_present(path: Path | str) -> bytes | None:
    try:
        return read_all(path)
    except FileNotFoundError:
        return None


def create(path: Path | str, data: bytes) -> int:
    """Create a file with this content; returns the descriptor, which the caller closes.

    The file is durable once the caller has synced it and its folder.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    return written(descriptor, partial(write_all, data=data))


@contextmanager
def writing() -> Iterator[Callable[[Path, bytes], int]]:
    """A function that writes a new file, open until the end of the block, and returns its descriptor."""
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
        # FileNotFoundError: the previous holder may remove the file after it was opened here, and another
        # process may create a new one. This lock then excludes nobody.
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
