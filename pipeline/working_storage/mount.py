"""Whether the folder of working storage is the one that has the jobs' content.

Rule: a folder that is missing, or empty because nothing is mounted there, is an outage of working storage and
no loss of content. A mark in the folder tells the two apart. It is written once, for the first job, and the
record notes it; from then on whoever knows that the content is lost writes it by hand.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.attempt import WorkingStorageRecord
from pipeline.file_system import make_below
from pipeline.outcome import Service, ServiceDown, transient
from pipeline.settings import Settings

MARK = ".arkline-working-storage"


def require(settings: Settings, record: WorkingStorageRecord) -> None:
    """ServiceDown unless working storage is there; the record is read only if the folder has no mark.

    The first folder is marked if no job has a part of working storage, or one that has a part has its folder
    there, as in that of an earlier release.
    """
    folder = settings.working
    try:
        if is_marked(folder):
            return
        if not record.was_marked() and _may_be_first(folder, record.reservations()):
            mark(folder)
            record.note_marked()
            return
        # another process marks before it notes the mark, and before its job reserves a part
        if is_marked(folder):
            return
    except OSError as error:
        raise ServiceDown(
            Service.WORKING_STORAGE,
            f"working storage {folder} cannot be used: {error.strerror or error}",
            of_host=True,
        ) from error
    raise _not_there(folder)


@contextmanager
def losses(settings: Settings) -> Iterator[None]:
    """A file that vanishes under a step: an outage if working storage is not there, else worth another try,
    which downloads what is gone."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        folder = settings.working
        if not Path(str(error.filename)).is_relative_to(folder):
            raise
        if not is_marked(folder):
            raise _not_there(folder) from error
        raise transient(f"{error.filename} is gone from working storage") from error


def _not_there(folder: Path) -> ServiceDown:
    return ServiceDown(
        Service.WORKING_STORAGE,
        f"working storage {folder} is not there: it has no file {MARK}; mount it. If its content is lost, or "
        f"{folder} is new, create that empty file in {folder}: jobs download again what is missing",
        of_host=True,
    )


def make_folder(path: Path, working: Path) -> None:
    """Make the folder of a job; ServiceDown if working storage was unmounted since the step began, so that
    nothing is written into the empty mount point."""
    if path.is_dir():
        return
    if not is_marked(working):
        raise _not_there(working)
    make_below(path, working)


def is_marked(folder: Path) -> bool:
    """Working storage is on this machine, and mounted."""
    return (folder / MARK).exists()


def mark(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def note_mark(settings: Settings, record: WorkingStorageRecord) -> None:
    """Note a mark that is there: a process may have died between the mark and the note."""
    if is_marked(settings.working) and not record.was_marked():
        record.note_marked()


def _may_be_first(folder: Path, reserved: Collection[str]) -> bool:
    return not reserved or any(path.name in reserved for path in folder.glob("bid*/jid*"))
