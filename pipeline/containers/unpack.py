"""Unpack a depositor's container; the format is recognized by the content.

Rule: everything that the depositor packed is unpacked, or the container is refused; nothing is silently
dropped, renamed or overwritten. Limits count the bytes unpacked, not those that a header claims.
"""

import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from pipeline import causes
from pipeline.attempt import Attempt, WorkCounter
from pipeline.containers.base import Archive, Entry, Format
from pipeline.containers.tar import BLOCK, TAR, TAR_BZ2, TAR_GZ
from pipeline.containers.zip import Zip
from pipeline.file_system import is_fault_of, is_full, lack_of_host, make_below
from pipeline.fixity import Digester
from pipeline.names import (
    CONTAINER_SUFFIXES,
    EXAMINED,
    HTML,
    PRODUCER,
    SIGN_IN,
    UnsafeName,
    UsedNames,
    is_web_page,
    quote_name,
    safe_name,
)
from pipeline.outcome import StepFailed, content, system
from pipeline.working_storage.capacity import no_room
from pipeline.working_storage.workspace import DownloadedFile

FORMATS: tuple[Format, ...] = (TAR, TAR_GZ, TAR_BZ2, Zip())
"""In the order tried; the content decides, not the name."""

_OTHER_FORMATS = {
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard",
}


def entries(archive: Archive) -> AbstractContextManager[Iterator[Entry]]:
    """The archive's entries; StepFailed(content) if its format is not known."""
    with archive.path.open("rb") as file:
        head = file.read(max(BLOCK, EXAMINED))
    for known in FORMATS:
        if known.recognizes(archive, head[:BLOCK]):
            return known.entries(archive)
    if is_web_page(head, HTML):  # no archive begins with markup
        raise content(
            f"{archive.title} is a web page, not an archive: {SIGN_IN}; give the address that downloads the "
            "archive itself, without a login"
        )
    others = (other for magic, other in _OTHER_FORMATS.items() if head.startswith(magic))
    raise content(
        f"{archive.title} is {next(others, 'not a known archive')}: pack it as "
        f"{' '.join(CONTAINER_SUFFIXES)}, or submit it as type file to store it unchanged"
    )


RATIO_FLOOR = 64 << 20
"""Bytes that any container may unpack to: a small, highly compressible container may have any ratio."""

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


@dataclass(frozen=True)
class Limits:
    """The limits of one unpacked container."""

    entries: int
    """Files and folders."""
    bytes: int
    ratio: int
    """Maximum unpacked size, as a multiple of the container's own size."""
    case_fold: bool = True
    """Refuse names that differ only in upper and lower case."""
    name_encoding: str = ""
    """The encoding of zip names that declare none; empty: UTF-8 if they are valid UTF-8, else CP437."""


def unpack(path: Path, name: str, target: Path, limits: Limits, attempt: Attempt) -> Iterator[DownloadedFile]:
    """Write the container's files one by one below `target`, which belongs to this attempt and is empty.

    `name` is the depositor's name for the container. The attempt is checked between chunks.
    The digests are computed while the files are written.
    StepFailed(content) if the container is refused; the files written until then stay in `target`.
    """
    archive = Archive(path, name, limits.entries, limits.bytes, limits.name_encoding)
    try:
        room = min(limits.bytes, max(RATIO_FLOOR, limits.ratio * path.stat().st_size))
        archive = replace(archive, max_bytes=room)
        target.mkdir(exist_ok=True)
        with entries(archive) as members:
            yield from _write_all(members, archive, target, limits.case_fold, attempt)
    except UnsafeName as error:
        raise _unsafe(archive, error) from error
    except _DAMAGED as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # raised by decompressors for invalid bytes
            raise _damaged(archive, error) from error
        if is_full(error):
            raise no_room(f"{error.strerror} while unpacking {quote_name(name)}") from error
        if is_fault_of(error, path.parent) or lack_of_host(error):
            raise  # an outage of working storage, or of this machine
        raise system(
            f"{archive.title} could not be unpacked ({error}): repair working storage, then resume the job"
        ) from error


def folders_without_files(path: Path, name: str, entries_limit: int, bytes_limit: int) -> tuple[str, ...]:
    """The empty folders of a container; nothing is unpacked.

    StepFailed(content) if the container cannot be read, or has an entry that is refused. Names whose encoding
    is not declared are not judged: the collection may say which it is.
    """
    archive = Archive(path, name, entries_limit, bytes_limit)
    folders, parents = set[str](), set[str]()
    try:
        with entries(archive) as members:
            names = UsedNames(case_fold=False)
            for entry in _allowed(members, archive, names, judges=lambda entry: not entry.name_encoding):
                inside = entry.name.strip("/")
                if entry.is_folder:
                    folders.add(inside)
                while inside := inside.rpartition("/")[0]:
                    parents.add(inside)
    except UnsafeName as error:
        raise _unsafe(archive, error) from error
    except _DAMAGED as error:
        raise _damaged(archive, error) from error
    return tuple(sorted(folders - parents - {"", "."}))


def _unsafe(archive: Archive, error: UnsafeName) -> StepFailed:
    return content(f"{archive.title}: {error}; rename it and pack again")


def _allowed(
    entries: Iterable[Entry],
    archive: Archive,
    names: UsedNames,
    begin: Callable[[], None] = lambda: None,
    judges: Callable[[Entry], bool] = lambda _: True,
) -> Iterator[Entry]:
    """The entries; StepFailed(content) or UnsafeName at the first that is refused, or if none is a file.

    `judges`: whether the entry's name is judged.
    """
    empty = True
    for count, entry in enumerate(entries, 1):
        begin()
        if entry.is_folder and entry.name in ("", "."):
            continue
        judged = judges(entry)
        if judged:
            safe_name(entry.name, PRODUCER)
        if entry.refused:
            raise content(f"{archive.title}: {quote_name(entry.name)} {entry.refused}")
        if judged and not entry.is_folder and (clash := names.add(entry.name)):
            raise content(f"{archive.title}: {clash.reason}; rename it and pack again")
        if max(count, names.count) > archive.max_entries:
            message = f"{archive.title} has more than {archive.max_entries} files and folders: divide it"
            raise content(message).because(causes.LIMIT_EXCEEDED(limit=f"of {archive.max_entries:,} entries"))
        empty = empty and entry.is_folder
        yield entry
    if empty:
        raise content(f"{archive.title} has no files in it")


def _write_all(
    entries: Iterable[Entry], archive: Archive, target: Path, case_fold: bool, attempt: Attempt
) -> Iterator[DownloadedFile]:
    folders = list[str]()
    room, counter = archive.max_bytes, WorkCounter(attempt)
    for entry in _allowed(entries, archive, UsedNames(case_fold), counter.begin_file):
        if entry.is_folder:
            folders.append(entry.name)
        else:
            file = _write(entry, archive, target, room, counter)
            room -= file.size
            yield file
    _make_folders(folders, archive, target)


def _make_folders(folders: list[str], archive: Archive, target: Path) -> None:
    """Make all folders, including those without files, which the report names."""
    for folder in folders:
        try:
            make_below(target / folder, target)
        except (FileExistsError, NotADirectoryError) as error:
            raise content(
                f"{archive.title}: {quote_name(folder)} is a folder and also a file; rename it and pack again"
            ) from error


def _write(entry: Entry, archive: Archive, target: Path, room: int, counter: WorkCounter) -> DownloadedFile:
    path = target / entry.name
    make_below(path.parent, target)
    digester = Digester()
    with entry.open() as source, path.open("xb") as file:
        while chunk := source.read(entry.chunk):
            counter.add(len(chunk))
            digester.update(chunk)
            if digester.size > room:
                raise content(
                    f"{archive.title} unpacks to more than its limit allows, at {quote_name(entry.name)}: "
                    "divide it, or ask the operator for a higher limit"
                ).because(causes.LIMIT_EXCEEDED(limit="of unpacked bytes"))
            file.write(chunk)
    return DownloadedFile(
        path=entry.name,
        size=digester.size,
        sha512=digester.value(),
        name_encoding=entry.name_encoding,
        raw_name=quote(entry.raw_name),
    )


def _damaged(archive: Archive, error: Exception) -> StepFailed:
    return content(
        f"{archive.title} is damaged, truncated or of an unusual kind ({error}): "
        "pack it again and submit it again"
    )
