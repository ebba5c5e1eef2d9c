"""Feeding in the background: jobs that end ask for one feed, however many end before it begins.

A feed reads the front of the queue of pending jobs, whose length must not be part of the cost of another job.
A request that is lost costs seconds: beat feeds too.
"""

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tasks.broker import COUNT_ITEMS
from tasks.logs import log
from tasks.queue_lists import lists_of
from tasks.redis_client import client

ENOUGH = 8
"""So many parts of the places, one of them filled with jobs that wait for a worker, need no further job."""

LIFETIME = 10
"""Seconds after which a request whose message was lost no longer keeps others from being sent."""

COMPLETE = 1
"""Seconds to suppress feeds after one that dispatched every pending job. Code that adds pending jobs feeds
by itself."""

_CLAIM = f"""{COUNT_ITEMS}
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if count_items(3) >= tonumber(ARGV[1]) then return 0 end
return redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) and 1 or 0
"""
"""1 if the caller is to send the message: a feed is needed, and nobody has requested one.

One command, because every job asks at its end.
"""


def request_feed(app: Celery, settings: Settings) -> bool:
    """Have pending jobs fed soon, unless that would find nothing to do; False without Redis."""
    keys = (_complete(settings), _requested(settings), *_waiting(settings))
    try:
        if client(settings).eval(_CLAIM, len(keys), *keys, str(_enough(settings)), str(LIFETIME)):
            app.send_task("beat.feed", expires=LIFETIME)
    except (redis.RedisError, OperationalError) as error:
        log().warning("no feed requested; beat feeds the pending jobs", error=str(error))
        return False
    return True


def take_requests(settings: Settings) -> bool:
    """True if a feed was requested since the last call; jobs that end from now on request another one."""
    try:
        return bool(client(settings).delete(_requested(settings)))
    except redis.RedisError as error:
        log().debug("requests of a feed not read: Redis does not answer", error=str(error))
        return False


def note_feed(settings: Settings, *, complete: bool) -> None:
    """Note whether the feed that just ended has left pending jobs without a ticket."""
    redis_client, key = client(settings), _complete(settings)
    try:
        if complete:
            redis_client.set(key, b"", ex=COMPLETE)
        else:
            redis_client.delete(key)
    except redis.RedisError as error:
        log().debug("end of a feed not noted: Redis does not answer", error=str(error))


def _enough(settings: Settings) -> int:
    """Messages of jobs that wait for a worker."""
    return max(1, settings.in_flight // ENOUGH)


def _waiting(settings: Settings) -> tuple[str, ...]:
    return tuple(lists_of(settings.broker_prefix, [JOB.task(JobState.PENDING).queue]))


def _requested(settings: Settings) -> str:
    return f"{settings.broker_prefix}feed-requested"


def _complete(settings: Settings) -> str:
    return f"{settings.broker_prefix}feed-complete"
