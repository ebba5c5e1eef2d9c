"""The folder of uploads: its mark, its records and its layout; reads by owners and workers.

Layout: `ID[:2]/ID/upload.json`; a complete file is `files/HASH/` with `content` and `file.json`, an
unfinished one `parts/HASH/`; HASH is the hash of the file's name. Rule: every path is derived from id and
name, so that neither a depositor's name nor a record can lead out of the folder.
"""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from pipeline import causes, codes
from pipeline.errors import UsageRefused
from pipeline.file_system import Mark, mount_faults, write_whole
from pipeline.fixity import Digest
from pipeline.names import is_upload_id, parse_upload_url, quote_name
from pipeline.outcome import Service, content
from pipeline.records import Record, now

MARK = ".arkline-uploads"
_MARK = Mark(Service.UPLOADS, MARK, "the folder of uploads")
is_marked, mark, require = _MARK.is_in, _MARK.put_into, _MARK.require

RECORD = "upload.json"
CONTENT = "content"
DESCRIPTION = "file.json"
DRAFT = "draft.json"
"""What is to be made of the files, if they are deposited by a draft; see `pipeline.uploads.draft`."""

FORMS = "forms"
"""The folder for the files of a form while it arrives; their names begin with the owner's hash."""

OWNERS = "owners"
"""The folder with the owners of uploads; see `pipeline.uploads.quota`."""

REMOVED = "removed"
"""The folder of uploads that are being removed."""


class UploadRefused(UsageRefused):
    """The bytes that arrived are of no use: they are removed, and no continuation gets them."""

    code = codes.UPLOAD_REFUSED


class Upload(Record):
    """`upload.json`."""

    id: str
    owner: str
    """Identity of the only principal that may use the upload."""
    created: datetime = Field(default_factory=now)
    submitted: datetime | None = None
    """When a batch was first submitted from the upload."""


class Declared(Record):
    """The depositor's declaration of a file before it arrives."""

    name: str
    size: int | None = None
    digest: Digest | None = None
    created: datetime = Field(default_factory=now)


class UploadedFile(Record):
    """`file.json` of a complete file."""

    name: str
    size: int
    sha512: str
    """Computed while the bytes arrived."""
    digest: Digest | None = None
    """The depositor's digest, which the bytes matched when they arrived."""
    created: datetime = Field(default_factory=now)


def missing(upload: str) -> UsageRefused:
    return UsageRefused(
        f"there is no upload {upload}: it was removed, or it is not yours", code=codes.UPLOAD_MISSING
    )


def folder_of(root: Path, upload: str) -> Path:
    if not is_upload_id(upload):
        raise missing(upload)
    return root / upload[:2] / upload


def owner_folder(root: Path, owner: str) -> Path:
    return root / OWNERS / hashlib.sha256(owner.encode()).hexdigest()


def folder_name(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def file_folder(root: Path, upload: str, name: str) -> Path:
    return folder_of(root, upload) / "files" / folder_name(name)


def part_folder(root: Path, upload: str, name: str) -> Path:
    return folder_of(root, upload) / "parts" / folder_name(name)


def write_record(path: Path, record: Record) -> None:
    write_whole(path, record.model_dump_json().encode())


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class StoredUpload:
    """A complete file of an upload, with the path of its bytes."""

    path: Path
    file: UploadedFile


def _read(root: Path, path: Path, kind: type[R]) -> R | None:
    """The record at `path`; None if there is none."""
    with faults(root):
        try:
            return kind.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            require(root)
            return None


def faults(root: Path) -> AbstractContextManager[None]:
    """Raise a fault of the file system of uploads as an outage."""
    return mount_faults(Service.UPLOADS, root, "the folder of uploads")


def load(root: Path, upload: str, owner: str) -> Upload:
    """The upload; `upload-missing` if it does not exist or, indistinguishably, belongs to somebody else."""
    record = _read(root, folder_of(root, upload) / RECORD, Upload)
    if record is None or record.owner != owner:
        raise missing(upload)
    return record


def find_file(root: Path, upload: str, name: str) -> UploadedFile | None:
    return _read(root, file_folder(root, upload, name) / DESCRIPTION, UploadedFile)


def find_part(root: Path, upload: str, name: str) -> Declared | None:
    """The declaration of an unfinished file; None if the file has not been begun."""
    return _read(root, part_folder(root, upload, name) / DESCRIPTION, Declared)


def part_size(root: Path, upload: str, name: str) -> int:
    """The bytes of an unfinished file so far."""
    return (part_folder(root, upload, name) / CONTENT).stat().st_size


def files(root: Path, upload: str) -> tuple[UploadedFile, ...]:
    """The complete files by name."""
    records = _each(root, folder_of(root, upload) / "files", UploadedFile)
    return tuple(sorted(records, key=lambda file: file.name))


def parts(root: Path, upload: str) -> tuple[Declared, ...]:
    """The unfinished files by name."""
    records = _each(root, folder_of(root, upload) / "parts", Declared)
    return tuple(sorted(records, key=lambda file: file.name))


def names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return frozenset()


def first_names(root: Path, upload: str) -> set[str]:
    """The names of the upload's files, complete or not; at most two of them."""
    place, names = folder_of(root, upload), set[str]()
    whole = (file.name for file in _each(root, place / "files", UploadedFile))
    begun = (file.name for file in _each(root, place / "parts", Declared))
    for name in chain(whole, begun):
        names.add(name)
        if len(names) > 1:
            break
    return names


def _each(root: Path, folder: Path, kind: type[R]) -> Iterator[R]:
    with faults(root):
        folders = list(folder.iterdir()) if folder.is_dir() else []
    for path in folders:
        if (record := _read(root, path / DESCRIPTION, kind)) is not None:
            yield record


def locate(root: Path, url: str) -> StoredUpload:
    """The file at an `upload:` URL, for a worker; a content failure if it does not exist.

    The right to use it was checked when the batch was submitted.
    """
    require(root)
    address = parse_upload_url(url)
    file = find_file(root, address.upload, address.name) if address.name else None
    if file is None:
        what = quote_name(address.name) if address.name else "one file"
        raise content(
            f"upload {address.upload} has no complete file {what}: upload it and submit it again"
        ).because(causes.UPLOAD_MISSING())
    return StoredUpload(file_folder(root, address.upload, address.name) / CONTENT, file)
