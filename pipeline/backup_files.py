"""The files of a backup: the record as JSON lines, a copy of the inventory, a manifest with their digests.

Rule: a backup's folder gets its final name once everything in it is complete; a folder with another name is
an interrupted backup. A backup whose digests do not match, or whose format is not supported, is refused.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from pipeline.deployment import Deployment
from pipeline.errors import UsageRefused
from pipeline.file_system import make_synced, sync, sync_tree
from pipeline.records import Record, now

FORMAT = 1
"""The format version of these files; a restore refuses a later one."""

MANIFEST = "backup.json"
RECORD = "record.jsonl"
INVENTORY = "inventory.sqlite"
POSTGRESQL_INVENTORY = "inventory.pgdump"
"""In pg_dump's own format."""


class NodeCopy(Record):
    """A znode below the entry's path; the entry's own node has the empty name. In a file, data is base64."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    name: str = ""
    data: bytes = b""


class RecordEntry(Record):
    """One line: a batch, a job or a single znode, with its primary nodes."""

    batch: str = ""
    """The batch's id, in the entries of batches and jobs."""
    job: str = ""
    """The job's id; an entry without nodes is a deleted job, of which the batch keeps only the name."""
    path: str = ""
    """The path of a single znode."""
    removed: bool = False
    """The batch was removed while it was being read: ignore its entries."""
    version: int = 0
    """The version of a single znode: the counter of batches is a node's version."""
    nodes: tuple[NodeCopy, ...] = ()

    @property
    def data(self) -> dict[str, bytes]:
        return {node.name: node.data for node in self.nodes}


class BackupManifest(Record):
    """The contents of a backup, and the location of the objects, which it does not contain."""

    format: Annotated[int, Field(ge=1)] = FORMAT
    began: datetime = Field(default_factory=now)
    ended: datetime | None = None
    deployment: Deployment
    storage: str
    """The storage root; its objects are not in the backup."""
    batches: int = 0
    jobs: int = 0
    digests: dict[str, str] = Field(default_factory=dict)
    """File name -> sha512."""


def partial_folder(folder: Path) -> Path:
    """Make the folder in which the files are written; UsageRefused if the name is taken or cannot be used."""
    if folder.exists():
        raise UsageRefused(f"{folder} exists: name a new folder for each backup")
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        make_synced(partial.parent)
        partial.mkdir(mode=0o700)
    except OSError as error:
        raise UsageRefused(f"{folder} cannot be written: {error.strerror}; name another folder") from error
    return partial


@contextmanager
def writing(partial: Path) -> Iterator[None]:
    """Raise a fault of the disk as UsageRefused; the block only writes, or its reads raise errors of ours."""
    try:
        yield
    except OSError as error:
        raise UsageRefused(
            f"{partial} cannot be written: {error.strerror or error}; remove it, and name a folder on a disk "
            "that has room"
        ) from error


def publish(partial: Path, folder: Path, manifest: BackupManifest) -> BackupManifest:
    """Write the manifest and give the folder its final name; UsageRefused if the disk is full or fails."""
    with writing(partial):
        names = sorted(file.name for file in partial.iterdir())
        complete = manifest.model_copy(
            update={"ended": now(), "digests": {name: _digest(partial / name) for name in names}}
        )
        (partial / MANIFEST).write_text(complete.model_dump_json(indent=2) + "\n")
        sync_tree(partial)
        partial.rename(folder)
        sync(folder.parent)
    return complete


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of a backup whose files match their digests; UsageRefused otherwise."""
    file = folder / MANIFEST
    if not file.is_file():
        raise UsageRefused(f"{folder} is not a complete backup: it has no {MANIFEST}; use another backup")
    try:
        manifest = BackupManifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise _damaged(file) from error
    if manifest.format > FORMAT:
        raise UsageRefused(
            f"{folder} has format {manifest.format}, and this release reads formats up to {FORMAT}: "
            "restore it with the release that wrote it, or a later one"
        )
    for name, digest in manifest.digests.items():
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise _damaged(folder / name)
    if RECORD not in manifest.digests:
        raise _damaged(file)
    return manifest


def entries(folder: Path) -> Iterator[RecordEntry]:
    """The lines of the record, in the order written."""
    with (folder / RECORD).open("rb") as lines:
        for line in lines:
            try:
                yield RecordEntry.model_validate_json(line)
            except ValidationError as error:
                raise _damaged(folder / RECORD) from error


def _damaged(file: Path) -> UsageRefused:
    return UsageRefused(f"{file} is damaged: use another backup")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha512").hexdigest()
