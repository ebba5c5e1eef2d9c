"""Working directories that a crash left on disk, whose job is deleted or cleaned up."""

import os
from collections.abc import Callable
from pathlib import Path

from pipeline.records import number_of
from pipeline.states import JOB, JobState
from zkstate import counters, jobs, queue, views
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

_WITH_FOLDER = (*JOB.where(lambda facts: facts.holds_space), JobState.FAILED)
"""States whose jobs usually have a folder; the queue of pending jobs is too long to be listed for this."""


def orphans(session: Session, working: Path) -> list[Path]:
    """The working directories that no job needs.

    The folders are listed first, because a job's record is created before its folder. A folder whose number
    this record has never assigned is kept: it belongs to another record, or the settings name the wrong
    record. Jobs in progress and failed ones, which may have a folder, are known from the queues; every other
    job is read.
    """
    folders = [
        Path(job.path) for batch in _folders(working, "bid") for job in _folders(Path(batch.path), "jid")
    ]
    if not folders:
        return []
    queued = {jid for state in _WITH_FOLDER for jid in queue.queued(session, state)}
    ended = ended_jobs(session)
    return [folder for folder in folders if folder.name not in queued and ended(folder.name)]


def ended_jobs(session: Session) -> Callable[[str], bool]:
    """A test for a JID: this record assigned the number, and the job is deleted or cleaned up."""
    last = counters.last(session, "job")

    def ended(jid: str) -> bool:
        if not 0 < number_of(jid) <= last:
            return False
        try:
            job = jobs.load(session, jid)
        except Missing:
            return not views.job_exists(session, jid)
        except Corrupt:
            return False
        return job.status.status is JobState.COMPLETED and not queue.has_entry(session, job)

    return ended


def _folders(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]
    except FileNotFoundError:  # a batch's folder is removed with that of its last job
        return []
