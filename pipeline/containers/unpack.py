"""Unpack a depositor's container; the format is recognized by the content.

Rule: everything the depositor gave arrives, or the container is refused; nothing is dropped, renamed or
overwritten in silence. Limits count the bytes that come out, not those that a header claims.
"""

import errno
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.containers.base import Archive, Entry
from pipeline.containers.formats import entries
from pipeline.fixity import OF_RECORD, Digester
from pipeline.names import PRODUCER, UnsafeName, UsedNames, quote_name, safe_name
from pipeline.outcome import StepFailed, content, system, transient

RATIO_FLOOR = 64 << 20
"""Bytes that any container may unpack to: the ratio of a small, very regular container means nothing."""

# Raised by the libraries for an archive that violates its format.
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RecursionError,
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Limits:
    """The limits of one unpacked container."""

    entries: int
    """Files and folders."""
    bytes: int
    ratio: int
    """Times the container's own size."""
    case_fold: bool = True
    """Refuse names that differ only in upper and lower case."""


@dataclass(frozen=True)
class UnpackedFile:
    """A file below the target folder, with the digest taken while it was written."""

    path: str
    size: int
    sha512: str


def unpack(
    archive: Path, name: str, target: Path, limits: Limits, attempt: Attempt
) -> tuple[UnpackedFile, ...]:
    """Write the container's files below `target`, which belongs to this attempt and is empty.

    `name` is what the depositor calls it. The attempt is checked between chunks.
    A refused container is StepFailed(content); files written until then stay with the attempt.
    """
    try:
        room = min(limits.bytes, max(RATIO_FLOOR, limits.ratio * archive.stat().st_size))
        target.mkdir(parents=True, exist_ok=True)
        opened = Archive(archive, name, limits.entries, room)
        with entries(opened) as members:
            files = _write_all(members, opened, target, limits.case_fold, attempt)
    except _DAMAGED as error:
        raise _damaged(name, error) from error
    except OSError as error:
        raise _fault(name, error) from error
    if not files:
        raise content(f"container {quote_name(name)} has no files in it")
    return files


def _write_all(
    entries: Iterable[Entry], archive: Archive, target: Path, case_fold: bool, attempt: Attempt
) -> tuple[UnpackedFile, ...]:
    names = UsedNames(case_fold)
    files: list[UnpackedFile] = []
    room = archive.max_bytes
    for count, entry in enumerate(entries, 1):
        attempt.check()
        if entry.is_folder and entry.name in ("", "."):
            continue
        _check(entry, archive.name)
        if not entry.is_folder and (clash := names.add(entry.name)):
            raise content(f"container {quote_name(archive.name)}: {clash.reason}; rename it and pack again")
        if max(count, names.count) > archive.max_entries:
            raise content(
                f"container {quote_name(archive.name)} has more than {archive.max_entries} files and "
                "folders: divide it"
            )
        if not entry.is_folder:
            files.append(_write(entry, archive.name, target, room, attempt))
            room -= files[-1].size
    return tuple(files)


def _check(entry: Entry, container: str) -> None:
    try:
        safe_name(entry.name, PRODUCER)
    except UnsafeName as error:
        raise content(f"container {quote_name(container)}: {error}; rename it and pack again") from error
    if entry.refused:
        raise content(f"container {quote_name(container)}: {quote_name(entry.name)} {entry.refused}")


def _write(entry: Entry, container: str, target: Path, room: int, attempt: Attempt) -> UnpackedFile:
    path = target / entry.name
    path.parent.mkdir(parents=True, exist_ok=True)
    digester = Digester()
    with entry.open() as source, path.open("xb") as file:
        while chunk := source.read(entry.chunk):
            attempt.check()
            digester.update(chunk)
            if digester.size > room:
                raise content(
                    f"container {quote_name(container)} unpacks to more than its limit allows, at "
                    f"{quote_name(entry.name)}: divide it, or ask the operator for a higher limit"
                )
            file.write(chunk)
    return UnpackedFile(entry.name, digester.size, digester.value(OF_RECORD))


def _damaged(name: str, error: Exception) -> StepFailed:
    return content(
        f"container {quote_name(name)} is damaged, truncated or of an unusual kind ({error}): "
        "pack it again and submit it again"
    )


def _fault(name: str, error: OSError) -> StepFailed:
    if error.errno is None:  # raised by decompressors for bytes that make no sense
        return _damaged(name, error)
    if error.errno in _NO_SPACE:
        return transient(f"working storage is full while unpacking {quote_name(name)}")
    return system(
        f"container {quote_name(name)} could not be unpacked ({error}): repair working storage, "
        "then resume the job"
    )
