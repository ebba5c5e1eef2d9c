"""Reading uploads: by their owner, and by the worker that takes a deposit from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from pipeline.file_system import mount_faults
from pipeline.names import quote_name
from pipeline.outcome import Service, content
from pipeline.records import Record
from pipeline.upload_url import parse_upload_url
from pipeline.uploads import layout
from pipeline.uploads.layout import Declared, Upload, UploadedFile

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class StoredUpload:
    """A complete file of an upload, and where its bytes are."""

    path: Path
    file: UploadedFile


def _read(root: Path, path: Path, kind: type[R]) -> R | None:
    """The record at `path`; None if there is none."""
    with faults(root):
        try:
            return kind.model_validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            layout.require(root)
            return None


@contextmanager
def faults(root: Path) -> Iterator[None]:
    """Raise a fault of the file system of uploads as an outage."""
    with mount_faults(Service.UPLOADS, root, "the folder of uploads"):
        yield


def load(root: Path, upload: str, owner: str) -> Upload:
    """The upload; UploadMissing if there is none or it is another's, which looks the same."""
    record = _read(root, layout.folder_of(root, upload) / layout.RECORD, Upload)
    if record is None or record.owner != owner:
        raise layout.missing(upload)
    return record


def find_file(root: Path, upload: str, name: str) -> UploadedFile | None:
    return _read(root, layout.file_folder(root, upload, name) / layout.DESCRIPTION, UploadedFile)


def find_part(root: Path, upload: str, name: str) -> Declared | None:
    """What was declared of an unfinished file; None if it was not begun."""
    return _read(root, layout.part_folder(root, upload, name) / layout.DESCRIPTION, Declared)


def part_size(root: Path, upload: str, name: str) -> int:
    """Bytes of an unfinished file that are here."""
    return (layout.part_folder(root, upload, name) / layout.CONTENT).stat().st_size


def files(root: Path, upload: str) -> tuple[UploadedFile, ...]:
    """The complete files by name."""
    records = _all(root, layout.folder_of(root, upload) / "files", UploadedFile)
    return tuple(sorted(records, key=lambda file: file.name))


def parts(root: Path, upload: str) -> tuple[Declared, ...]:
    """The unfinished files by name."""
    records = _all(root, layout.folder_of(root, upload) / "parts", Declared)
    return tuple(sorted(records, key=lambda file: file.name))


def first_names(root: Path, upload: str) -> set[str]:
    """The names of its files, complete or not; of many, two."""
    place, names = layout.folder_of(root, upload), set[str]()
    whole = (file.name for file in _each(root, place / "files", UploadedFile))
    begun = (file.name for file in _each(root, place / "parts", Declared))
    for name in chain(whole, begun):
        names.add(name)
        if len(names) > 1:
            break
    return names


def _all(root: Path, folder: Path, kind: type[R]) -> list[R]:
    return list(_each(root, folder, kind))


def _each(root: Path, folder: Path, kind: type[R]) -> Iterator[R]:
    with faults(root):
        folders = list(folder.iterdir()) if folder.is_dir() else []
    for path in folders:
        if (record := _read(root, path / layout.DESCRIPTION, kind)) is not None:
            yield record


def locate(root: Path, url: str) -> StoredUpload:
    """The file at an `upload:` URL, for a worker; a content failure if it is not there.

    Who may use it was checked when the batch was submitted.
    """
    layout.require(root)
    address = parse_upload_url(url)
    file = find_file(root, address.upload, address.name) if address.name else None
    if file is None:
        what = quote_name(address.name) if address.name else "one file"
        raise content(f"upload {address.upload} has no complete file {what}: upload it and submit it again")
    return StoredUpload(layout.file_folder(root, address.upload, address.name) / layout.CONTENT, file)
