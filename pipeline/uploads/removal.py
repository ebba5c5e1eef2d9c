"""Using and removing uploads: an upload that a batch is about to use is not removed at the same moment."""

import fcntl
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.records import now
from pipeline.upload_url import is_upload_id
from pipeline.uploads import layout
from pipeline.uploads.layout import Upload
from pipeline.uploads.reading import faults, load

PART_AGE = 86400.0
"""Seconds without a new byte after which an unfinished file is removed."""


def use(root: Path, upload: str, owner: str) -> Upload:
    """Note that a batch is made of the upload, which keeps it for as long as an unused one is kept."""
    folder = layout.folder_of(root, upload)
    with faults(root), _locked(folder):
        record = load(root, upload, owner)
        used = record.model_copy(update={"submitted": record.submitted or now()})
        layout.write_record(folder / layout.RECORD, used)
        return used


def remove(root: Path, upload: str) -> None:
    """Remove the whole upload; a crash leaves it whole, or among those that the next clean-up removes."""
    with faults(root):
        (root / layout.REMOVED).mkdir(exist_ok=True)
        target = root / layout.REMOVED / f"{upload}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            layout.folder_of(root, upload).rename(target)
        shutil.rmtree(target, ignore_errors=True)


def clean_up(root: Path, unused_for: float, needed: Callable[[], frozenset[str]]) -> list[str]:
    """Remove what no batch needs and nobody wrote to for `unused_for` seconds; the ids of those removed.

    `needed`: the ids of uploads whose batch may still read them; asked after the old ones are known, and only
    if there are some. The clock is that of the file system which dated the files.
    """
    if not layout.is_marked(root):
        return []
    with faults(root):
        present = _present(root)
        for left in _folders(root / layout.REMOVED):
            shutil.rmtree(left, ignore_errors=True)
        for form in (root / layout.FORMS).glob("*.*"):
            with suppress(FileNotFoundError):
                if present - form.stat().st_mtime > PART_AGE:
                    form.unlink()
        for note in (root / layout.OWNERS).glob("*/*"):
            if not layout.folder_of(root, note.name).exists():
                note.unlink(missing_ok=True)
        uploads = [
            folder for prefix in _folders(root) for folder in _folders(prefix) if is_upload_id(folder.name)
        ]
        for upload in uploads:
            _remove_old_parts(upload, present)
        old = [upload for upload in uploads if present - _written(upload) > unused_for]
        unneeded = {upload.name for upload in old} - needed() if old else set()
        return [
            upload.name
            for upload in old
            if upload.name in unneeded and _remove_if_old(root, upload, present, unused_for)
        ]


def _remove_if_old(root: Path, upload: Path, present: float, unused_for: float) -> bool:
    with _locked(upload):
        if present - _written(upload) <= unused_for:
            return False  # it was submitted meanwhile
        remove(root, upload.name)
        return True


def _remove_old_parts(upload: Path, present: float) -> None:
    for part in _folders(upload / "parts"):
        with suppress(FileNotFoundError):
            content = part / layout.CONTENT
            newest = (content if content.exists() else part).stat().st_mtime
            if present - newest > PART_AGE and not _is_written(content):
                shutil.rmtree(part, ignore_errors=True)


def _is_written(content: Path) -> bool:
    """Whether a request writes the file at this moment."""
    if not content.exists():
        return False
    with content.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _written(upload: Path) -> float:
    """When something was written to the upload last."""
    places = [upload / layout.RECORD, upload / "files", upload / "parts"]
    places += [part / layout.CONTENT for part in _folders(upload / "parts")]
    moments = []
    for place in places:
        with suppress(FileNotFoundError):
            moments.append(place.stat().st_mtime)
    return max(moments, default=upload.stat().st_mtime)


def _present(root: Path) -> float:
    """The current time by the file system's clock."""
    mark = root / layout.MARK
    mark.touch()
    return mark.stat().st_mtime


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the upload's lock; none if the folder no longer exists."""
    try:
        stream = (folder / "lock").open("a")
    except FileNotFoundError:
        yield
        return
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
