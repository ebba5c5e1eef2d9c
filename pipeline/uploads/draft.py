"""The draft of a deposit: what is to be made of an upload's files, with the depositor's corrections.

It is one document beside the files, `draft.json`: whole or absent at any moment, and counted in the owner's
quota. Writing it keeps the upload for another ARKLINE_UPLOAD_DAYS, as the arrival of a file does.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from pipeline import codes
from pipeline.codes import Code
from pipeline.errors import UsageRefused
from pipeline.file_system import write_whole
from pipeline.records import NAME_LENGTH, AgreedVersions, Count, Name, Record, Text, now
from pipeline.uploads import stored, writing

LIMIT = 32 << 20
"""Maximum bytes of a draft: the names, sizes and digests of some 100,000 files."""

FileName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Correction = Annotated[str, StringConstraints(pattern=r"^.+:[a-z0-9_]+$", max_length=1100)]


class DraftRefused(UsageRefused):
    """There is no draft, or it cannot be deposited; `listed`: each file or value at fault."""

    code = codes.DRAFT_REFUSED

    def __init__(
        self, message: str, listed: tuple[dict[str, Any], ...] = (), *, code: Code | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.listed = listed


class Objects(StrEnum):
    """Which objects are made: one of all files, one of each file, or one of each row of the table."""

    ONE = "one"
    EACH = "each"
    TABLE = "table"


class DraftFile(Record):
    """A file that the depositor has chosen, whether it has arrived or not."""

    name: FileName = Field(
        description="Its path relative to what was chosen; it is uploaded as `files/NAME`.",
        examples=["scans/harbour.tif"],
    )
    size: Count
    sha512: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")] | None = Field(
        None, description="As the depositor computed it: what arrives must have it."
    )


class Draft(Record):
    """What is to be deposited, as the depositor says."""

    name: str = Field("", max_length=NAME_LENGTH, description="The deposit's name.")
    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    objects: Objects
    files: tuple[DraftFile, ...] = Field((), description="If left out, those of the saved draft stay.")
    table: FileName | None = Field(None, description="The table's file, uploaded under this very name.")
    sheet: str | None = Field(None, max_length=255, description="null: the first one.")
    header_row: int | None = Field(None, ge=1, description="null: recognized.")
    columns: dict[Text, Text] = Field(
        default_factory=dict,
        description="Header -> field, for headers whose names do not say it; an empty one is left out.",
    )
    values: dict[Correction, Text] = Field(
        default_factory=dict,
        description="`KEY:FIELD` -> value, in place of the table's; KEY: that of the object in the preview.",
        examples=[{"7:title": "Harbour at dawn"}],
    )
    new_version: AgreedVersions = Field(
        default_factory=dict,
        description="ARK -> its current version: the object may get the next one.",
        examples=[{"ark:/99999/fk4abc": 1}],
    )


class SavedDraft(Draft):
    """`draft.json`."""

    updated: datetime = Field(default_factory=now)
    version: Count = 0
    """How often it was saved before."""
    key: str = ""
    """The idempotency key of its last deposit, written before the submission."""
    rows: dict[str, tuple[tuple[str, str], ...]] = Field(default_factory=dict)
    """KEY -> header and cell of each column, for rows that were corrected: in a changed table they may be
    elsewhere."""

    def require(self, version: int | None) -> None:
        """Raise `draft-changed` unless it has this version; None: any."""
        if version not in (None, self.version):
            raise DraftRefused(
                "the deposit was changed in another tab or by another program, and nothing of this request "
                "was saved: read it again, and repeat your change if you still want it",
                code=codes.DRAFT_CHANGED,
            )


def _path(root: Path, upload: str) -> Path:
    return stored.folder_of(root, upload) / stored.DRAFT


def read(root: Path, upload: str) -> SavedDraft:
    """The draft; `no-draft` if the upload has none, or one that cannot be read."""
    with stored.faults(root):
        try:
            return SavedDraft.model_validate_json(_path(root, upload).read_bytes())
        except FileNotFoundError as error:
            stored.require(root)
            raise DraftRefused(f"upload {upload} has no draft: PUT one", code=codes.NO_DRAFT) from error
        except ValidationError as error:
            raise DraftRefused(
                f"the draft of upload {upload} is damaged, or of another release: send it again; the files "
                "that have arrived stay",
                code=codes.NO_DRAFT,
            ) from error


def write(root: Path, upload: str, data: bytes) -> None:
    """Write the draft's JSON; `uploads-full` if the disk is full, and the earlier draft stays as it was."""
    with writing.storing(root):
        write_whole(_path(root, upload), data)


def status(root: Path, upload: str) -> os.stat_result | None:
    """The status of the draft's file; None if there is none."""
    with stored.faults(root), suppress(FileNotFoundError):
        return _path(root, upload).stat()
    return None


@contextmanager
def locked(root: Path, upload: str) -> Iterator[None]:
    """Hold the draft's lock, so that it does not change while it is deposited; `upload-missing`."""
    with writing.storing(root):
        try:
            stream = (stored.folder_of(root, upload) / "draft.lock").open("a")
        except FileNotFoundError as error:
            raise stored.missing(upload) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


class Arrived:
    """The bytes of an upload's files that have arrived, found without reading the files' records."""

    def __init__(self, root: Path, upload: str) -> None:
        self._folder = stored.folder_of(root, upload)
        self._complete = stored.names_in(self._folder / "files")
        self._sizes: dict[str, int | None] = {}

    def size(self, name: str) -> int | None:
        """The bytes of a file, as they were when they were first asked for; None if it is not complete."""
        if name not in self._sizes:
            self._sizes[name] = self._size(name)
        return self._sizes[name]

    def _size(self, name: str) -> int | None:
        if self._complete and (folder := stored.folder_name(name)) in self._complete:
            with suppress(FileNotFoundError):
                return (self._folder / "files" / folder / stored.CONTENT).stat().st_size
        return None

    @property
    def unfinished(self) -> int:
        """The bytes of files that are not complete."""
        folder, size = self._folder / "parts", 0
        for name in stored.names_in(folder):
            with suppress(FileNotFoundError):
                size += (folder / name / stored.CONTENT).stat().st_size
        return size
