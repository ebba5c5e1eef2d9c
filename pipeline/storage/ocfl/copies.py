"""Copies files, and reads copies back from the disk.

A copy is complete when its bytes have been synced and read back from the disk, not from the page cache.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.file_system import opened, start_writing, write_all, written
from pipeline.files import ContentFile
from pipeline.fixity import READ_CHUNK, OnRead, ignore

COPY_CHUNK = 32 << 20
"""Bytes that are copied between two checks of the attempt; a disk needs less than a second for them."""

READ_ONLY = 0o444

REQUESTED_AHEAD = 128 << 10
"""Bytes of a file that are requested from the disk before they are read: as many as Linux reads ahead."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def put(file: ContentFile, target: str, attempt: Attempt) -> int:
    """Write a new file with the content of `file`, which the caller syncs, reads back and closes."""
    if file.data is not None:
        return written(os.open(target, _NEW, READ_ONLY), partial(write_all, data=file.data))
    with opened(file.source, os.O_RDONLY | os.O_NOFOLLOW) as reader:
        copy = partial(_copy, reader, size=file.size, attempt=attempt)
        return written(os.open(target, _NEW, READ_ONLY), copy)


def _copy(reader: int, writer: int, size: int, attempt: Attempt) -> None:
    """Copy until the end, or until there are `size` bytes: with another end it is not the file that was asked
    for, as the digest of the copy shows.
    """
    copied = 0
    while copied != size and (some := _copy_some(reader, writer, min(COPY_CHUNK, size + 1 - copied))):
        copied += some
        if some == COPY_CHUNK:
            start_writing(writer)
            attempt.check()


def copy_and_read_back(source: Path, target: str, attempt: Attempt) -> tuple[int, str]:
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

    All are open at a time, and their beginnings are requested from the disk before the first is read.
    """
    with ExitStack() as stack:
        descriptors = []
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
        return read_open_back(descriptors, on_read)


def read_open_back(descriptors: Sequence[int], on_read: OnRead) -> list[tuple[int, str]]:
    """As `read_all_back`, for files that are open already."""
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
    """Let the next reading be one from the disk; a length of 0 is until the end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def _request_from_disk(descriptor: int) -> None:
    """Let the disk begin to read; returns at once."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, REQUESTED_AHEAD, os.POSIX_FADV_WILLNEED)


@contextmanager
def _copying(source: Path, target: str) -> Iterator[tuple[int, int]]:
    """The descriptors of a file and of its new copy.

    The kernel copies, which is free where the file system can share blocks. Never a hard link: later changes
    in the working directory must not change stored content.
    """
    with (
        opened(source, os.O_RDONLY | os.O_NOFOLLOW) as reader,
        opened(target, _NEW, READ_ONLY) as writer,
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
    """Read `length` bytes; fewer if the file ends before."""
    view = memoryview(bytearray(min(READ_CHUNK, length)))  # memory that is not used costs time, too
    end = start + length
    while start < end and (size := os.preadv(descriptor, [view[: end - start]], start)):
        update(view[:size])
        on_read(size)
        start += size
