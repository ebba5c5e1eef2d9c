"""The draft of a deposit: what is to be made of an upload's files, with the depositor's corrections.

It is one document beside the files, `draft.json`: whole or absent at any moment, and counted in the owner's
quota. Writing it keeps the upload for another ARKLINE_UPLOAD_DAYS, as the arrival of a file does.
"""

import fcntl
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
from pipeline.records import Name, Record, Text, now
from pipeline.uploads import stored, writing

LIMIT = 32 << 20
"""Maximum bytes of a draft: the names, sizes and digests of some 100,000 files."""


class DraftRefused(UsageRefused):
    """There is no draft, or it may not become this; nothing was changed."""

    code = codes.DRAFT_REFUSED

    def __init__(
        self, message: str, listed: tuple[dict[str, Any], ...] = (), *, code: Code | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.listed = listed
        """Each file or value at fault."""


class Objects(StrEnum):
    """Which objects are made of the files."""

    ONE = "one"
    EACH = "each"
    TABLE = "table"


class DraftFile(Record):
    """A file that the depositor has chosen, whether it has arrived or not."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="Its path relative to what was chosen; it is uploaded as `files/NAME`.",
        examples=["scans/harbour.tif"],
    )
    size: int = Field(ge=0)
    sha512: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")] | None = Field(
        None, description="As computed by the depositor: what arrives must have it."
    )


Correction = Annotated[str, StringConstraints(pattern=r"^.+:[a-z_]+$", max_length=1200)]


class Draft(Record):
    """What is to be deposited. `objects` says whether the files become one object, one each, or a table's."""

    name: Annotated[str, StringConstraints(max_length=255)] = Field("", description="The deposit's name.")
    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    objects: Objects
    files: tuple[DraftFile, ...] = ()
    table: str | None = Field(
        None, max_length=1024, description="The table's file, uploaded under this name, without `files/`."
    )
    sheet: str | None = Field(None, max_length=255, description="null: the first one.")
    header_row: int | None = Field(None, ge=1, description="null: recognized.")
    columns: dict[Text, Annotated[str, StringConstraints(max_length=40)]] = Field(
        default_factory=dict,
        description="Header of the table -> field, for headers whose names do not say it. Empty: left out.",
    )
    values: dict[Correction, Text] = Field(
        default_factory=dict,
        description="`KEY:FIELD` -> value, in place of the table's; KEY: that of the object in the preview.",
        examples=[{"7:title": "Harbour at dawn"}],
    )
    new_version: dict[str, int] = Field(
        default_factory=dict,
        description="ARK -> number of its last version: the object may get the next one.",
        examples=[{"ark:/99999/fk4abc": 1}],
    )


class SavedDraft(Draft):
    """`draft.json`."""

    updated: datetime = Field(default_factory=now)
    key: str = ""
    """The idempotency key under which it was last deposited; written before the submission."""


def path_of(root: Path, upload: str) -> Path:
    return stored.folder_of(root, upload) / stored.DRAFT


def read(root: Path, upload: str) -> SavedDraft:
    """The draft; DraftRefused if the upload has none, or one that cannot be read."""
    with stored.faults(root):
        try:
            return SavedDraft.model_validate_json(path_of(root, upload).read_bytes())
        except FileNotFoundError as error:
            stored.require(root)
            raise DraftRefused(f"upload {upload} has no draft: PUT one", code=codes.NO_DRAFT) from error
        except ValidationError as error:
            raise DraftRefused(
                f"the draft of upload {upload} is damaged or of another release: send it again; the files "
                "that have arrived stay",
                code=codes.NO_DRAFT,
            ) from error


def key_of(root: Path, upload: str) -> str:
    """The key under which the draft was last deposited; empty if it was not, or cannot be read."""
    try:
        return read(root, upload).key
    except DraftRefused:
        return ""


def write(root: Path, upload: str, draft: SavedDraft) -> None:
    """Write the draft; if the disk is full, `uploads-full`, and the earlier draft stays as it was."""
    with writing.storing(root):
        stored.write_record(path_of(root, upload), draft)


@contextmanager
def locked(root: Path, upload: str) -> Iterator[None]:
    """Hold the draft's lock, so that it is not changed while it is deposited; `upload-missing`."""
    with writing.storing(root):
        try:
            stream = (stored.folder_of(root, upload) / "draft.lock").open("a")
        except FileNotFoundError as error:
            raise stored.missing(upload) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


class Arrived:
    """The complete files of an upload by name, found without reading their records."""

    def __init__(self, root: Path, upload: str) -> None:
        self._root = root
        self._upload = upload
        self._folders = stored.names_in(stored.folder_of(root, upload) / "files")

    def size(self, name: str) -> int | None:
        """The bytes of the file; None if it is not complete."""
        folder = stored.file_folder(self._root, self._upload, name)
        return (folder / stored.CONTENT).stat().st_size if folder.name in self._folders else None


def size(root: Path, upload: str) -> int:
    """The bytes of the draft; 0 if there is none."""
    try:
        return path_of(root, upload).stat().st_size
    except FileNotFoundError:
        return 0


def changed(root: Path, upload: str) -> float | None:
    """When the draft was last written; None if there is none."""
    try:
        return path_of(root, upload).stat().st_mtime
    except FileNotFoundError:
        return None


def partial_bytes(root: Path, upload: str) -> int:
    """The bytes that have arrived of unfinished files."""
    folder = stored.folder_of(root, upload) / "parts"
    total = 0
    for name in stored.names_in(folder):
        with suppress(FileNotFoundError):
            total += (folder / name / stored.CONTENT).stat().st_size
    return total
