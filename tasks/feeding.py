"""Feeding in the background: jobs that end ask for one feed, however many end before it begins.

A feed reads the front of the queue of pending jobs, whose length must not be part of the cost of another job.
A request that is lost costs seconds: beat feeds too.
"""

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tasks.broker import waiting_messages
from tasks.logs import log
from tasks.redis_client import client

ENOUGH = 4
"""So many parts of the places, one of them filled with jobs that wait for a worker, need no further job."""

LIFETIME = 10
"""Seconds after which a request whose message was lost no longer keeps others from being sent."""


def request_feed(app: Celery, settings: Settings) -> bool:
    """Have pending jobs fed soon, unless many have been fed that no worker has taken; False without Redis."""
    try:
        if _has_enough(settings):
            return True
        if client(settings).set(_key(settings), b"", nx=True, ex=LIFETIME):
            app.send_task("beat.feed", expires=LIFETIME)
    except (redis.RedisError, OperationalError) as error:
        log().warning("no feed requested; beat feeds the pending jobs", error=str(error))
        return False
    return True


def _has_enough(settings: Settings) -> bool:
    enough = max(1, settings.in_flight // ENOUGH)
    return waiting_messages(settings, [JOB.task(JobState.PENDING).queue]) >= enough


def take_requests(settings: Settings) -> bool:
    """True if a feed was requested since the last call, and is needed still.

    Jobs that end from now on request another one.
    """
    try:
        return bool(client(settings).delete(_key(settings))) and not _has_enough(settings)
    except redis.RedisError as error:
        log().debug("requests of a feed not read: Redis does not answer", error=str(error))
        return False


def _key(settings: Settings) -> str:
    return f"{settings.broker_prefix}feed-requested"
