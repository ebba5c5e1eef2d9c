"""What a crash left behind on disk: its job is gone, or was cleaned up before."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pipeline.states import JobState
from zkstate import creation, jobs, queue, views
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session


def orphans(session: Session, working: Path) -> list[Path]:
    """The directories that nobody needs any more.

    The folders are listed first: a job's record is there before its folder, and the folder of a job that
    has completed goes before its queue entry. A folder of a number that this record has never given is
    left alone: it belongs to another record, or the settings name the wrong one.
    """
    found = [
        Path(job.path) for batch in _folders(working, "bid") for job in _folders(Path(batch.path), "jid")
    ]
    ended = ended_jobs(session)
    return [folder for folder in found if ended(folder.name)]


def ended_jobs(session: Session) -> Callable[[str], bool]:
    """Whether this record gave that number once, and its job is gone or was cleaned up."""
    return partial(_is_orphan, session, creation.last_number(session))


def _folders(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [each for each in entries if each.name.startswith(prefix) and each.is_dir()]
    except FileNotFoundError:  # a batch's folder goes with its last job
        return []


def _is_orphan(session: Session, last: int, jid: str) -> bool:
    number = jid.removeprefix("jid")
    if not number.isdecimal() or int(number) > last:
        return False
    try:
        job = jobs.load(session, jid)
    except Missing:
        return not views.job_exists(session, jid)
    except Corrupt:
        return False
    return job.status.status is JobState.COMPLETED and not queue.has_entry(session, job)
