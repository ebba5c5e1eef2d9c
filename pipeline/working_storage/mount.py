"""Whether the folder of working storage is the one that has the jobs' content.

Rule: a folder that is missing, or empty because nothing is mounted there, is an outage of working storage and
no loss of content. A mark in the folder tells the two apart. It is written once, for the first job, and the
record notes it; from then on whoever knows that the content is lost writes it by hand.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.attempt import WorkingStorageRecord
from pipeline.file_system import Mark, make_below
from pipeline.outcome import Service, transient
from pipeline.settings import Settings

MARK = ".arkline-working-storage"
_MARK = Mark(Service.WORKING_STORAGE, MARK, "working storage", ": jobs download again what is missing")
is_marked, mark = _MARK.is_in, _MARK.put_into


def require(settings: Settings, record: WorkingStorageRecord) -> None:
    """ServiceDown unless working storage is there; the record is read only if the folder has no mark.

    The first folder is marked if no job has a part of working storage, or one that has a part has its folder
    there, as in that of an earlier release.
    """
    folder = settings.working
    with _MARK.faults(folder):
        if is_marked(folder):
            return
        if not record.was_marked() and _may_be_first(folder, record.reservations()):
            mark(folder)
            record.note_marked()
            return
    # another process marks before it notes the mark, and before its job reserves a part
    _MARK.require(folder)


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
            raise _MARK.lacking(folder) from error
        raise transient(f"{error.filename} is gone from working storage") from error


def make_folder(path: Path, working: Path) -> None:
    """Make the folder of a job; ServiceDown if working storage was unmounted since the step began, so that
    nothing is written into the empty mount point."""
    if path.is_dir():
        return
    if not is_marked(working):
        raise _MARK.lacking(working)
    make_below(path, working)


def note_mark(settings: Settings, record: WorkingStorageRecord) -> None:
    """Note a mark that is there: a process may have died between the mark and the note."""
    if is_marked(settings.working) and not record.was_marked():
        record.note_marked()


def _may_be_first(folder: Path, reserved: Collection[str]) -> bool:
    return not reserved or any(path.name in reserved for path in folder.glob("bid*/jid*"))
