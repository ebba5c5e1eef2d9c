"""A worker that is alive but takes no messages any more is ended: whoever started it starts it again.

Celery has had workers that stopped consuming after Redis came back and were healthy by every other sign
(celery#8091, celery#10205). Being up is not enough: what counts is that waiting messages are taken.
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

EXIT_STALLED = 75
"""EX_TEMPFAIL of sysexits.h: start me again."""


@dataclass(frozen=True)
class Sample:
    """What the worker and its queues look like at one moment."""

    waiting: int
    """Messages in the queues that this worker consumes; 0 if Redis does not answer."""
    taken: int
    """Messages that it has taken since it started."""
    idle: bool
    """True if it has a process free for another."""


class Watchdog:
    """Looks at the signs a few times while `patience` (seconds) lasts; calls `end` when nothing moved."""

    def __init__(self, look: Callable[[], Sample], end: Callable[[], None], patience: float) -> None:
        self._look = look
        self._end = end
        self._pause = patience / LOOKS
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        before = self._look()
        deaf = 0
        while not self._stopped.wait(self._pause):
            signs = self._look()
            same = signs.taken == before.taken and before.idle and signs.idle
            stuck = same and before.waiting and signs.waiting
            deaf = deaf + 1 if stuck else 0
            before = signs
            if deaf >= LOOKS:
                self._end()
                return


LOOKS = 4


def look(settings: Settings, queues: Iterable[str], concurrency: int) -> Sample:
    try:
        waiting = waiting_messages(settings, queues)
    except redis.RedisError:
        waiting = 0
    return Sample(waiting, sum(state.total_count.values()), len(state.active_requests) < concurrency)


def end() -> None:
    log().critical("takes no messages though some are waiting: ends, to be started again")
    os._exit(EXIT_STALLED)
