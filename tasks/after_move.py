"""What follows a move: cleaning after a completed job, the batch's report, room for the next job."""

import shutil
from pathlib import Path

from pipeline.profiles.quota import quota_in
from pipeline.records import Job
from pipeline.states import JOB, Event, JobState
from tasks.dispatch import dispatch_failed, dispatch_jobs, dispatch_moved
from tasks.logs import log
from tasks.worker_context import PROCESS
from zkstate import batches, jobs, queue
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

_ENDED = (JobState.COMPLETED, JobState.FAILED, JobState.DELETED)


def after_move(session: Session, job: Job) -> None:
    """Nothing here is needed for the truth: what a crash leaves undone, timed work does."""
    state = job.status.status
    if state in JOB.working():
        return
    if state in _ENDED:
        dispatch_moved(batches.finish_if_ended(session, job.bid))
    if state is JobState.FAILED:
        dispatch_failed(job.jid, job.status.epoch)
    feed(session)
    if Event.CLEAN_UP in JOB.events(state):
        clean_up(session, job)


def feed(session: Session) -> int:
    """Take up as many pending jobs as there is room for; how many."""
    settings = PROCESS.clients().settings
    tickets = queue.feed(session, settings.in_flight, quota_in(settings.profiles))
    dispatch_jobs((ticket, 0) for ticket in tickets)
    return len(tickets)


def clean_up(session: Session, job: Job) -> None:
    """The working directory first, then the promise of its bytes and the queue entry."""
    remove_folder(Path(job.configuration.working_dir))
    jobs.clean_up(session, job)


def remove_folder(folder: Path) -> None:
    """Remove a working directory, and its batch's when it was the last one in it."""
    shutil.rmtree(folder, ignore_errors=False, onerror=_already_gone)
    try:
        folder.parent.rmdir()
    except OSError:
        log().debug("batch folder stays", folder=str(folder.parent))


def _already_gone(_function: object, path: str, reason: tuple[type, BaseException, object]) -> None:
    if not isinstance(reason[1], FileNotFoundError):
        raise reason[1]


def clean_up_completed(session: Session) -> int:
    """Finish the cleaning of completed jobs that a crash left undone; how many."""
    done = 0
    for jid in queue.queued(session, JobState.COMPLETED):
        try:
            clean_up(session, jobs.load(session, jid))
        except (Missing, Corrupt, OSError) as error:
            log().error("cannot be cleaned up", jid=jid, error=str(error))
            continue
        done += 1
    return done
