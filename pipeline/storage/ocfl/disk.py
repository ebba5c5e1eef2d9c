"""File operations of the OCFL store: copies with their digest, what must last, one lock per object."""

import ctypes
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.outcome import StepFailed, system, transient

CHECK_BYTES = 32 << 20
"""Bytes copied between two checks of the attempt: well under a second on any disk."""

POLL = 0.05
"""Seconds between two tries for an object's lock."""

FEW = 100
"""Files synced one by one; more are synced with one syncfs, which measured 5 times faster with 5,000 files
of 10 KB, but waits for what others have written as well."""

READ_ONLY = 0o444

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
_C = ctypes.CDLL(None, use_errno=True)


def failure(error: OSError, root: Path) -> StepFailed:
    """What an operator has to know about an error of the file system."""
    if error.errno in _FULL:
        return transient(f"the storage root {root} is full ({error.strerror}); it is tried again")
    place = f"{error.filename}: " if error.filename else f"{root}: "
    return system(f"{place}{error.strerror or error}")


def copy(source: Path, target: Path, attempt: Attempt) -> tuple[int, str]:
    """Copy a file; answers the size and sha512 of the copy, read from the copy itself.

    The kernel copies, which costs nothing where the file system can share blocks. Never a hard link: what
    happens to the working directory later must not happen to what is stored.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, READ_ONLY)
        try:
            while _copy_piece(reader, writer):
                attempt.check()
            size = os.fstat(writer).st_size
            os.lseek(writer, 0, os.SEEK_SET)
            return size, _sha512(writer, attempt)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_piece(reader: int, writer: int) -> int:
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(reader, writer, CHECK_BYTES)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
    piece = os.read(reader, CHECK_BYTES)
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(writer, rest) :]
    return len(piece)


def digest(path: Path, attempt: Attempt) -> tuple[int, str]:
    """Size and sha512 of a file, read from the disk and not from the memory that just wrote it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size, _sha512(descriptor, attempt)
    finally:
        os.close(descriptor)


def _sha512(descriptor: int, attempt: Attempt) -> str:
    found = hashlib.sha512()
    piece = bytearray(1 << 20)
    view = memoryview(piece)
    seen = 0
    while length := os.readv(descriptor, [piece]):
        found.update(view[:length])
        seen += length
        if seen % CHECK_BYTES == 0:
            attempt.check()
    return found.hexdigest()


def write(path: Path, data: bytes) -> None:
    """A new file that lasts once its folder is synced."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync_tree(folder: Path) -> None:
    """Make all files and folders below last."""
    below = [(Path(parent), files) for parent, _, files in os.walk(folder)]
    if sum(len(files) for _, files in below) > FEW and hasattr(_C, "syncfs"):
        _sync_file_system(folder)
        return
    for parent, files in below:
        for name in files:
            _sync(parent / name, os.O_RDONLY | os.O_NOFOLLOW)
        sync(parent)


def sync(folder: Path) -> None:
    """Make a folder's own entries last: its names, not the files behind them."""
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
def locked(path: Path, what: str, patience: float, attempt: Attempt) -> Iterator[None]:
    """The kernel's lock on a file that exists only while somebody holds or wants it.

    Unlike a lock in ZooKeeper it does not end with a session: a process that is stopped between its last
    look and the rename that publishes still holds it, so nobody publishes in between. It ends with the
    process. StepFailed(transient) after `patience` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    while (descriptor := _try_lock(path)) is None:
        attempt.check()
        if time.monotonic() > deadline:
            raise transient(f"{what} is being written by another process for more than {patience:g} seconds")
        time.sleep(POLL)
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
        # The holder before us may have removed the file after we opened it: then it locks nobody out.
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
