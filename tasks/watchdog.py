"""Ends a worker that runs but consumes no messages, so that its supervisor restarts the worker.

Celery has had workers that stopped consuming after Redis came back, and that answered every other check
(celery#8091, celery#10205). A running process proves nothing: waiting messages must be consumed.
"""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import redis
from celery.worker import state

from pipeline.settings import Settings
from tasks.broker import waiting_messages
from tasks.logs import log

EXIT_STALLED = os.EX_TEMPFAIL
"""A supervisor restarts the process."""


SAMPLES = 4
"""Samples in a row without a consumed message, after which a worker counts as stalled."""


@dataclass(frozen=True)
class Sample:
    """The worker and its queues at one moment."""

    waiting: int
    """Messages in the queues that this worker consumes; 0 if Redis does not answer."""
    taken: int
    """Messages that the worker has consumed since it started."""
    idle: bool
    """True if the worker has a free process."""


def watch(
    sample: Callable[[], Sample], end: Callable[[], None], limit: float, stopped: threading.Event
) -> None:
    """Until `stopped`: call `end` if nothing was consumed in SAMPLES samples, spread over `limit` seconds."""
    before = sample()
    stalled = 0
    while not stopped.wait(limit / SAMPLES):
        now = sample()
        could_consume = before.idle and now.idle and before.waiting and now.waiting
        stalled = stalled + 1 if could_consume and now.taken == before.taken else 0
        before = now
        if stalled >= SAMPLES:
            end()
            return


def take_sample(settings: Settings, queues: Iterable[str], concurrency: int) -> Sample:
    try:
        waiting = waiting_messages(settings, queues)
    except redis.RedisError:
        waiting = 0
    return Sample(waiting, sum(state.total_count.values()), len(state.active_requests) < concurrency)


def end() -> None:
    log().critical("consumer stalled with messages queued; exiting for restart")
    os._exit(EXIT_STALLED)
