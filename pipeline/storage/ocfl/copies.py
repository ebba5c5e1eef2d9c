"""Copies of files, and their bytes as they are on the disk.

A copy counts once its bytes were synced and then read back from the disk, not from memory.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.durable import opened, start_writing
from pipeline.files import ContentFile
from pipeline.fixity import READ_CHUNK, OnRead

COPY_CHUNK = 32 << 20
"""Bytes copied between two checks of the attempt: well under a second on any disk."""

READ_ONLY = 0o444

_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)


def put(file: ContentFile, target: Path, attempt: Attempt) -> None:
    """Write a new file with the content of `file`; whoever relies on it syncs it and reads it back."""
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
    """Copy a large file; size and sha512 of the copy as they are on the disk.

    While a chunk is copied and synced, a thread reads the chunk before from the disk: the two times overlap.
    Whoever relies on the copy syncs the file and its folder once more, for their metadata.
    """
    size, sha512 = 0, hashlib.sha512()
    with _copying(source, target) as (reader, writer), ThreadPoolExecutor(1) as thread:
        reading: Future[None] | None = None
        while copied := _copy_chunk(reader, writer):
            _sync_bytes(writer)
            attempt.check()
            if reading:
                reading.result()
            reading = thread.submit(_read_chunk, writer, size, copied, sha512.update)
            size += copied
        if reading:
            reading.result()
        return os.fstat(writer).st_size, sha512.hexdigest()


def read_back(path: Path, on_read: OnRead) -> tuple[int, str]:
    """Size and sha512 of a file that was synced, as they are on the disk and not in the page cache."""
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        _drop_from_memory(descriptor, 0, 0)
        size = os.fstat(descriptor).st_size
        return size, _sha512(descriptor, size, on_read)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


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
    """Copy COPY_CHUNK bytes, or the rest: the next chunk begins with a page of memory of its own."""
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


def _drop_from_memory(descriptor: int, start: int, length: int) -> None:
    """Let the next read come from the disk; 0 is the length to the end of the file."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


def _read_chunk(descriptor: int, start: int, length: int, update: Callable[[memoryview], None]) -> None:
    _drop_from_memory(descriptor, start, length)
    view = memoryview(bytearray(READ_CHUNK))
    end = start + length
    while start < end and (read := os.preadv(descriptor, [view[: end - start]], start)):
        update(view[:read])
        start += read


def _sha512(descriptor: int, size: int, on_read: OnRead) -> str:
    sha512 = hashlib.sha512()
    chunk = bytearray(min(READ_CHUNK, size + 1))  # memory that is not used costs time, too
    view = memoryview(chunk)
    while length := os.readv(descriptor, [chunk]):
        sha512.update(view[:length])
        on_read(length)
    return sha512.hexdigest()
