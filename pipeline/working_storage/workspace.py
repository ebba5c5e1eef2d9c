"""A job's working directory, and the list of downloaded files that the steps pass on.

Layout of a working directory: `producer/` the depositor's files, complete ones only; `system/` our files;
`attempts/TOKEN/` one attempt's unfinished files; `manifest.checkm` the object manifest;
`landing.json` the downloaded files with size and digest, written last; `stored.json` the stored version and
its ERC. A file named NAME.TOKEN.draft was never completed.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha512
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter
from pydantic_core import to_json

from pipeline.file_system import make_below, read_all, write_file
from pipeline.fixity import Digest, StoredVersion
from pipeline.records import Job, Record
from pipeline.working_storage import mount
from pipeline.working_storage.mount import ContentGone


class DownloadedFile(Record):
    """One file under `producer/`: its path there, size in bytes, and digest of record."""

    path: str
    size: int
    sha512: str
    url: str = ""
    digest: Digest | None = None
    """The digest declared for the file or for `container`; checked before the file was put here."""
    declared_by: str | None = None
    """Where the digest was declared, in words; empty if none was, None in records of early releases."""
    container: str = ""
    """The container that the digest belongs to; empty if it is the file's own."""
    name_encoding: str = ""
    """The encoding assumed for the name, if its container does not declare it."""
    raw_name: str = ""
    """The packed bytes of the name, percent-encoded, in that case."""
    is_web_page: bool = False
    """Whether the file arrived as HTML, although its name is not a web page's."""


_FILES = TypeAdapter(tuple[DownloadedFile, ...])
_STORED = TypeAdapter(StoredVersion)


class _StoredErc(Record):
    """The additional fields beside those of the stored version; earlier releases wrote none."""

    erc: str = ""


@dataclass(frozen=True)
class Draft:
    """A complete file of this attempt that no other attempt sees."""

    path: Path
    size: int
    sha512: str


REMOVED = ".removed"
"""Suffix of files and folders that are being removed; after a crash, the next removal deletes them."""


def remove_renamed(path: Path, token: str) -> None:
    """Remove it under another name: a process that pauses here must not remove files of a later attempt."""
    with suppress(OSError):  # of a full disk: it is removed under its own name
        path = path.rename(path.with_name(f"{path.name}.{token}{REMOVED}"))
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def folder_of(job: Job, working: Path) -> Path:
    """The job's working directory, regardless of the record's `working_dir`: a path from the record could
    name somebody else's folder, which would be removed with the job."""
    return folder_at(working, job.bid, job.jid)


def folder_at(working: Path, bid: str, jid: str) -> Path:
    return working / bid / jid


class Workspace:
    """The paths of one job's working directory."""

    def __init__(self, folder: Path, token: str) -> None:
        self._token = token
        self.folder = folder
        self.producer = folder / "producer"
        self.system = folder / "system"
        self.attempt = folder / "attempts" / token
        self.manifest = folder / "manifest.checkm"
        self.downloaded = folder / "landing.json"
        self.stored = folder / "stored.json"

    @classmethod
    def of(cls, job: Job, working: Path) -> "Workspace":
        return cls(folder_of(job, working), job.status.op or "none")

    @property
    def content(self) -> tuple[Path, ...]:
        """The folders with nearly all bytes; without them the content has to be downloaded again."""
        return self.attempt.parent, self.producer

    def make_folder(self, path: Path) -> None:
        """Make a folder in the working directory; ServiceDown if working storage is no longer available."""
        mount.make_folder(self.folder, self.folder.parents[1])
        make_below(path, self.folder)

    def draft_of(self, name: str) -> Path:
        """The path at which this attempt writes a file before it gets its name in the working directory."""
        return self.folder / f"{name}.{self._token}.draft"

    def publish(self, path: Path, data: bytes) -> None:
        """Write a file below the working directory; it is complete or absent at any moment."""
        draft = path.with_name(f"{path.name}.{self._token}.draft")
        try:
            write_file(draft, data)
        except FileNotFoundError:
            self.make_folder(path.parent)
            write_file(draft, data)
        draft.replace(path)

    def draft(self, name: str, pieces: Iterable[bytes]) -> Draft:
        path = self.attempt / f"{name}.draft"
        digest, size = sha512(), 0
        with self._new_file(path) as file:
            for piece in pieces:
                digest.update(piece)
                size += file.write(piece)
        return Draft(path, size, digest.hexdigest())

    def _new_file(self, path: Path) -> BinaryIO:
        try:
            return path.open("wb")
        except FileNotFoundError:
            self.make_folder(path.parent)
            return path.open("wb")

    def place(self, draft: Draft, path: Path) -> None:
        """Give the draft its name, replacing an earlier file of this name."""
        try:
            draft.path.replace(path)
        except FileNotFoundError:
            self.make_folder(path.parent)
            draft.path.replace(path)

    def distinguishes_case(self) -> bool:
        """False if two names that differ only in upper and lower case are one file in this folder."""
        self.publish(self.attempt / "case", b"")
        return not (self.attempt / "CASE").exists()

    def write_downloaded(self, files: tuple[DownloadedFile, ...]) -> None:
        self.publish(self.downloaded, _FILES.dump_json(files, indent=1))

    def read_downloaded(self) -> tuple[DownloadedFile, ...]:
        """The downloaded files as listed; ContentGone if the list is missing or unreadable."""
        try:
            return _FILES.validate_json(read_all(self.downloaded))
        except FileNotFoundError as error:
            raise ContentGone(f"{self.downloaded} is missing") from error
        except ValueError as error:  # damaged, or of another release
            raise ContentGone(f"{self.downloaded} cannot be read: {error}") from error

    def downloaded_files(self) -> tuple[DownloadedFile, ...] | None:
        """The downloaded files; None if the list is missing or damaged."""
        try:
            return self.read_downloaded()
        except ContentGone:
            return None

    def read_content(self) -> tuple[DownloadedFile, ...]:
        """The downloaded files; ContentGone unless every file exists with its listed size."""
        files = self.read_downloaded()
        for file in files:
            path = f"{self.producer}/{file.path}"
            try:
                size = os.lstat(path).st_size
            except (FileNotFoundError, NotADirectoryError) as error:
                raise ContentGone(f"{path} is missing") from error
            if size != file.size:
                raise ContentGone(f"{path} has {size:,} bytes instead of {file.size:,}")
        return files


def write_stored(workspace: Workspace, version: StoredVersion, erc: bytes = b"") -> None:
    """Save the version and the ERC that was stored with it; b"" if that is not available."""
    noted = {**_STORED.dump_python(version, mode="json"), "erc": erc.decode()}
    workspace.publish(workspace.stored, to_json(noted, indent=1))


def read_stored(workspace: Workspace) -> tuple[StoredVersion | None, bytes]:
    """The stored version, None if the file is lost, and the ERC saved with it, b"" if none was saved; storage
    has them in that case.
    """
    try:
        data = read_all(workspace.stored)
        version = _STORED.validate_json(data)
    except (FileNotFoundError, ValueError):
        return None, b""
    try:
        return version, _StoredErc.model_validate_json(data).erc.encode()
    except ValueError:
        return version, b""


@dataclass(frozen=True)
class Holder:
    """A failed job: the outstanding bytes of its reservation, and the bytes of its content."""

    jid: str
    outstanding: int
    content: int


@dataclass(frozen=True)
class Reclaim:
    """The jobs that lose their reservations, and the jobs whose content is also removed."""

    reservations: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()


def plan(short: int, holders: Sequence[Holder]) -> Reclaim | None:
    """Choose what frees `short` bytes; None if failed jobs hold less. `holders`: oldest failure first."""
    reservations: list[str] = []
    contents: list[str] = []
    for holder in holders:
        if short > 0 and holder.outstanding:
            reservations.append(holder.jid)
            short -= holder.outstanding
    for holder in holders:
        if short > 0 and holder.content:
            contents.append(holder.jid)
            short -= holder.content
    return None if short > 0 else Reclaim(tuple(reservations), tuple(contents))
