"""The consequences of a move of a job or a batch, made by a worker, the sweep or an operator.

The record is correct without them: the sweep and other scheduled work do what a crash leaves undone.
"""

from pathlib import Path

import redis
from celery import Celery
from kombu.exceptions import OperationalError

import celeryconfig
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.file_system import remove_tree
from pipeline.records import Batch, Job
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, BatchState, JobState
from pipeline.working_storage.workspace import folder_of
from tasks.broker import COUNT_ITEMS, dispatch_batch, dispatch_failure_callback, dispatch_job, dispatch_jobs
from tasks.logs import log
from tasks.redis_keys import client, lists_of
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.queue import queue
from zkstate.queue.fairness import site_limits
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import is_done


def after_move(app: Celery, session: Session, settings: Settings, moved: Job | Batch) -> bool:
    """Do what follows from the state that a job or batch has just reached, and have pending jobs fed.

    False if Redis did not accept a message; the sweep sends it later.
    """
    sent = follow(app, session, settings, moved)
    if isinstance(moved, Job) and JOB.facts[moved.status.status].task is None:
        return request_feed(app, settings) and sent
    return feed(app, session, settings) and sent


def follow(app: Celery, session: Session, settings: Settings, moved: Job | Batch) -> bool:
    """`after_move` without feeding, for a caller that moves many jobs and feeds once at the end."""
    if isinstance(moved, Batch):
        return _follow_batch(app, session, moved)
    state = moved.status.status
    if state is JobState.PENDING:
        return True  # feeding selects pending jobs
    if state in JOB.working():
        return dispatch_job(app, record.ticket(moved), moved.status.priority)
    sent = True
    if JOB.facts[state].ended and not moved.unended:
        finished = batches.finish_if_ended(session, moved.bid, _actor(moved))
        sent = finished is None or _follow_batch(app, session, finished)
    if state is JobState.FAILED:
        sent = dispatch_failure_callback(app, moved.jid, moved.status.epoch) and sent
    if is_done(state):
        _remove_folder_of(moved, settings.working)
    return sent


def _follow_batch(app: Celery, session: Session, batch: Batch) -> bool:
    """Dispatch the task of the batch's state; a batch that is split waits for its jobs, if any is left."""
    if batch.status.status is BatchState.PROCESSING and batch.status.total is not None:
        finished = batches.finish_if_ended(session, batch.bid, _actor(batch))
        return finished is None or _follow_batch(app, session, finished)
    if batch.status.status not in BATCH.working():
        return True
    return dispatch_batch(app, record.ticket(batch))


def _actor(moved: Job | Batch) -> str:
    """The principal of the last move."""
    return moved.history[-1].by if moved.history else ""


def feed(app: Celery, session: Session, settings: Settings) -> bool:
    """Dispatch pending jobs until the limit of active jobs is reached; False if Redis refused a message."""
    fed = queue.feed(session, settings.in_flight, site_limits(settings))
    note_feed(settings, complete=fed.complete)
    return dispatch_jobs(app, [(ticket, ticket.priority) for ticket in fed.tickets])


def _remove_folder_of(job: Job, working: Path) -> bool:
    """Remove the working directory of a completed job; what a crash or a fault leaves becomes an orphan."""
    try:
        remove_folder(folder_of(job, working))
    except OSError as error:
        log().error("working directory not removed", jid=job.jid, error=str(error))
        return False
    return True


def remove_folder(folder: Path) -> None:
    """Remove a working directory, and the folder of its batch if that is now empty."""
    remove_tree(folder)
    remove_if_empty(folder.parent)


def remove_if_empty(batch: Path) -> None:
    """Remove the folder of a batch, unless there are folders of its jobs."""
    try:
        batch.rmdir()
    except OSError:
        log().debug("batch folder is still in use", folder=str(batch))


def clean_up_completed(session: Session, working: Path, attempt: Attempt = UNATTENDED) -> int:
    """Clean up the completed jobs that a worker of an earlier release left; returns their number.

    The working directory is removed first, then the reservation and the queue entry.
    """
    done = 0
    for jid in queue.queued(session, JobState.COMPLETED):
        attempt.check()
        try:
            job = jobs.load(session, jid)
            if not is_done(job.status.status):  # by damage: the check of the record reports the entry
                log().error("not cleaned up: the job is not completed", jid=jid, state=job.status.status)
            elif _remove_folder_of(job, working):
                jobs.clean_up(session, job)
                done += 1
        except (Missing, Corrupt) as error:
            log().error("job not cleaned up", jid=jid, error=str(error))
    return done


ENOUGH = 8
"""No feed is needed while jobs that wait for a worker fill 1/ENOUGH of the places."""

LIFETIME = 10
"""Seconds after which a request whose message was lost no longer blocks others."""

COMPLETE = 1
"""Seconds to suppress feeds after one that dispatched every pending job. Code that adds pending jobs feeds
by itself."""

_REQUESTED, _COMPLETE = "feed-requested", "feed-complete"
"""Keys in Redis."""

_CLAIM = f"""{COUNT_ITEMS}
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if count_items(3) >= tonumber(ARGV[1]) then return 0 end
return redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) and 1 or 0
"""
"""Returns 1 if the caller has to send the message: a feed is needed, and none is requested yet.

One command, because it runs at the end of every job.
"""


def request_feed(app: Celery, settings: Settings) -> bool:
    """Request a feed of pending jobs, unless it would have nothing to do; False if Redis does not answer.

    Jobs that end request one feed, however many end before it begins: a feed reads the front of the queue of
    pending jobs, whose length must not add to the cost of each job. A lost request costs a few seconds: beat
    feeds too.
    """
    waiting = lists_of(settings.broker_prefix, [JOB.task(JobState.PENDING).queue])
    keys = (settings.broker_prefix + _COMPLETE, settings.broker_prefix + _REQUESTED, *waiting)
    enough = max(1, settings.in_flight // ENOUGH)
    try:
        if client(settings).eval(_CLAIM, len(keys), *keys, str(enough), str(LIFETIME)):
            app.send_task("beat.feed", expires=LIFETIME + celeryconfig.CLOCK_DIFFERENCE)
    except (redis.RedisError, OperationalError) as error:
        log().warning("no feed requested; beat feeds the pending jobs", error=str(error))
        return False
    return True


def take_requests(settings: Settings) -> bool:
    """True if a feed was requested since the last call; jobs that end from now on request another one."""
    try:
        return bool(client(settings).delete(settings.broker_prefix + _REQUESTED))
    except redis.RedisError as error:
        log().debug("feed requests were not read: Redis does not answer", error=str(error))
        return False


def note_feed(settings: Settings, *, complete: bool) -> None:
    """Note whether the feed that just ended has left pending jobs without a ticket."""
    key = settings.broker_prefix + _COMPLETE
    try:
        if complete:
            client(settings).set(key, b"", ex=COMPLETE)
        else:
            client(settings).delete(key)
    except redis.RedisError as error:
        log().debug("end of a feed not noted: Redis does not answer", error=str(error))
