"""Whether the folder of working storage is the one with the jobs' content.

Rule: a folder that is missing, or empty because nothing is mounted there, is an outage of working storage and
no loss of content. A mark in the folder distinguishes the two. The mark is written once, for the first job,
and noted in the record; afterwards only a person who knows that the content is lost creates it again.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.attempt import WorkingStorageRecord
from pipeline.errors import ArklineError
from pipeline.file_system import Mark, make_below
from pipeline.outcome import Service, transient
from pipeline.settings import Settings

MARK = ".arkline-working-storage"
_MARK = Mark(Service.WORKING_STORAGE, MARK, "working storage", ": jobs download again what is missing")
is_marked, mark = _MARK.is_in, _MARK.put_into


def require(settings: Settings, record: WorkingStorageRecord) -> None:
    """ServiceDown unless working storage is available; the record is read only if the folder has no mark.

    The first folder is marked if no job has a reservation, or if a job with one has its folder there, as with
    an earlier release.
    """
    folder = settings.working
    with _MARK.faults(folder):
        if is_marked(folder):
            return
        if not record.was_marked() and _may_be_first(folder, record.reservations()):
            mark(folder)
            record.note_marked()
            return
    # another process marks the folder before it notes the mark, and before its job gets a reservation
    _MARK.require(folder)


class ContentGone(ArklineError):
    """Downloaded files are missing from working storage, or incomplete: the job downloads them again."""


@contextmanager
def losses(settings: Settings) -> Iterator[None]:
    """Translate a file's disappearance during a step: into an outage if working storage is not available,
    else into a transient failure, after which a retry downloads the file again."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        folder = settings.working
        if not Path(str(error.filename)).is_relative_to(folder):
            raise
        if not is_marked(folder):
            raise _MARK.lacking(folder) from error
        raise transient(f"{error.filename} is gone from working storage") from error
    except ContentGone as gone:
        if not is_marked(settings.working):
            raise _MARK.lacking(settings.working) from gone
        raise transient(str(gone)) from gone


def make_folder(path: Path, working: Path) -> None:
    """Make the folder of a job; ServiceDown if working storage was unmounted since the step began, so that
    nothing is written into the empty mount point."""
    if path.is_dir():
        return
    if not is_marked(working):
        raise _MARK.lacking(working)
    make_below(path, working)


def note_mark(settings: Settings, record: WorkingStorageRecord) -> None:
    """Note an existing mark, since a process may have died between marking and noting."""
    if is_marked(settings.working) and not record.was_marked():
        record.note_marked()


def _may_be_first(folder: Path, reserved: Collection[str]) -> bool:
    return not reserved or any(job in reserved for batch in folder.glob("bid*") for job in _names(batch))


def _names(batch: Path) -> list[str]:
    with suppress(FileNotFoundError):  # another process may remove it
        return [path.name for path in batch.glob("jid*")]
    return []
