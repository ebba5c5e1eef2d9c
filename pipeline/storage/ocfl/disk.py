"""File operations of the OCFL store: copies with digests, syncs, and one lock per object."""

import ctypes
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.outcome import StepFailed, system, transient

COPY_CHUNK = 32 << 20
"""Bytes copied between two checks of the attempt: well under a second on any disk."""

READ_CHUNK = 1 << 20
"""Bytes read at a time to compute a digest."""

LOCK_POLL = 0.05
"""Seconds between two tries for the lock of an object."""

SYNC_ONE_BY_ONE = 100
"""Maximum files that are synced one by one. More are synced by one syncfs: with 5,000 files of 10 KB that was
5 times faster, but a syncfs also waits for the writes of others."""

READ_ONLY = 0o444

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
_C = ctypes.CDLL(None, use_errno=True)


@contextmanager
def failures(root: Path) -> Iterator[None]:
    """Errors of the file system as StepFailed; a full disk is transient."""
    try:
        yield
    except OSError as error:
        raise _failure(error, root) from error


def _failure(error: OSError, root: Path) -> StepFailed:
    if error.errno in _FULL:
        return transient(f"the storage root {root} is full ({error.strerror}); the job will try again")
    place = f"{error.filename}: " if error.filename else f"{root}: "
    return system(f"{place}{error.strerror or error}")


def copy(source: Path, target: Path, attempt: Attempt) -> tuple[int, str]:
    """Copy a file; returns size and sha512 of the copy, read from the copy itself.

    The kernel copies, which is free where the file system can share blocks. Never a hard link: later changes
    in the working directory must not change stored content.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, READ_ONLY)
        try:
            while _copy_chunk(reader, writer):
                attempt.check()
            size = os.fstat(writer).st_size
            os.lseek(writer, 0, os.SEEK_SET)
            return size, _sha512(writer, lambda _: attempt.check())
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_chunk(reader: int, writer: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(reader, writer, COPY_CHUNK)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
    chunk = os.read(reader, COPY_CHUNK)
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(writer, rest) :]
    return len(chunk)


def digest(path: Path, on_read: Callable[[int], None]) -> tuple[int, str]:
    """Size and sha512 of a file, read from the disk and not from the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size, _sha512(descriptor, on_read)
    finally:
        os.close(descriptor)


def _sha512(descriptor: int, on_read: Callable[[int], None]) -> str:
    sha512 = hashlib.sha512()
    chunk = bytearray(READ_CHUNK)
    view = memoryview(chunk)
    while length := os.readv(descriptor, [chunk]):
        sha512.update(view[:length])
        on_read(length)
    return sha512.hexdigest()


@dataclass(frozen=True)
class ObjectFolder:
    """The files of an object on this disk; satisfies `reading.ObjectFiles`."""

    folder: Path

    def location(self, path: str) -> str:
        return str(self.folder / path)

    def read(self, path: str) -> bytes | None:
        return read_if_present(self.folder / path)

    def size(self, path: str) -> int | None:
        try:
            return (self.folder / path).stat().st_size
        except FileNotFoundError:
            return None

    def digest(self, path: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        try:
            return digest(self.folder / path, on_read)
        except FileNotFoundError:
            return None


def read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write(path: Path, data: bytes) -> None:
    """Write and sync a new file; it is durable once its folder is synced."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_tree(folder: Path) -> None:
    """Make all files and folders below durable."""
    below = [(Path(parent), files) for parent, _, files in os.walk(folder)]
    if sum(len(files) for _, files in below) > SYNC_ONE_BY_ONE and hasattr(_C, "syncfs"):
        _sync_file_system(folder)
        return
    for parent, files in below:
        for name in files:
            _sync(parent / name, os.O_RDONLY | os.O_NOFOLLOW)
        sync(parent)


def sync(folder: Path) -> None:
    """Make the entries of a folder durable: the names, not the content of the files."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _C.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, what: str, lock_wait: float, attempt: Attempt) -> Iterator[None]:
    """Hold the kernel's lock on a file; the file exists only while a process holds or waits for the lock.

    Unlike a lock in ZooKeeper, this lock does not end with a session: a process that is paused between its
    last check and the rename still holds the lock, so no other process can publish. The lock ends with the
    process. StepFailed(transient) after `lock_wait` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + lock_wait
    while (descriptor := _try_lock(path)) is None:
        attempt.check()
        if time.monotonic() > deadline:
            raise transient(f"another process has been writing {what} for more than {lock_wait:g} seconds")
        time.sleep(LOCK_POLL)
    try:
        yield
    finally:
        try:
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the file after we opened it: then this lock excludes nobody.
        if _is_at(path, descriptor):
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
