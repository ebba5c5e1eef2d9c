"""Copies files, and reads copies back from the disk.

A copy is complete when its bytes have been synced and read back from the disk, not from the page cache.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.durable import opened, start_writing, write_all
from pipeline.files import ContentFile
from pipeline.fixity import READ_CHUNK, OnRead, ignore

COPY_CHUNK = 32 << 20
"""Bytes that are copied between two checks of the attempt; a disk needs less than a second for them."""

READ_ONLY = 0o444

_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def put(file: ContentFile, target: Path, attempt: Attempt) -> None:
    """Write a new file with the content of `file`. The caller syncs the new file and reads it back."""
    if file.data is None:
        with _copying(file.source, target) as (reader, writer):
            while copied := _copy_chunk(reader, writer):
                if copied == COPY_CHUNK:
                    start_writing(writer)
                attempt.check()
        return
    with opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READ_ONLY) as descriptor:
        write_all(descriptor, file.data)


def copy_and_read_back(source: Path, target: Path, attempt: Attempt) -> tuple[int, str]:
    """Copy a large file; returns the size and the sha512 of the copy, read from the disk.

    A thread reads the previous chunk from the disk while the next chunk is copied and synced. The caller
    still syncs the copy and its folder, for their metadata.
    """
    size, sha512 = 0, hashlib.sha512()
    with _copying(source, target) as (reader, writer), ThreadPoolExecutor(1) as thread:
        reading: Future[None] | None = None
        while copied := _copy_chunk(reader, writer):
            _sync_bytes(writer)
            attempt.check()
            if reading:
                reading.result()
            reading = thread.submit(_read, writer, size, copied, sha512.update, ignore)
            size += copied
        if reading:
            reading.result()
        return os.fstat(writer).st_size, sha512.hexdigest()


def read_back(path: Path, on_read: OnRead) -> tuple[int, str]:
    """Size and sha512 of a synced file, read from the disk and not from the page cache."""
    sha512 = hashlib.sha512()
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        size = os.fstat(descriptor).st_size
        _read(descriptor, 0, size + 1, sha512.update, on_read)  # a byte more: a longer file is noticed
        return size, sha512.hexdigest()


@contextmanager
def _copying(source: Path, target: Path) -> Iterator[tuple[int, int]]:
    """The descriptors of a file and of its new copy.

    The kernel copies, which is free where the file system can share blocks. Never a hard link: later changes
    in the working directory must not change stored content.
    """
    created = os.O_RDWR | os.O_CREAT | os.O_EXCL
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW) as reader,
        opened(target, created, READ_ONLY) as writer,
    ):
        yield reader, writer


def _copy_chunk(reader: int, writer: int) -> int:
    """Copy COPY_CHUNK bytes, or the rest of the file: only whole pages of memory can be dropped."""
    copied = 0
    while copied < COPY_CHUNK and (some := _copy_some(reader, writer, COPY_CHUNK - copied)):
        copied += some
    return copied


def _copy_some(reader: int, writer: int, most: int) -> int:
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
    """Read at most `length` bytes from the disk, and not from the page cache."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)
    view = memoryview(bytearray(min(READ_CHUNK, length)))  # memory that is not used costs time, too
    end = start + length
    while start < end and (size := os.preadv(descriptor, [view[: end - start]], start)):
        update(view[:size])
        on_read(size)
        start += size
