"""Redis as kombu fills it, a list for each priority step of a queue; needs neither Celery nor kombu."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import redis

from pipeline.settings import Settings


@lru_cache(maxsize=8)
def client(settings: Settings, timeout: float = 5.0) -> redis.Redis:
    """One for all commands of a process; `timeout`: seconds to wait for a connection or an answer."""
    return redis.Redis.from_url(settings.broker_url, socket_timeout=timeout, socket_connect_timeout=timeout)


PRIORITY_STEPS = range(10)
"""0 is the most urgent."""

OWN_TURN = 0
"""The priority step of a job whose submitter and collection have less than their share of the processes."""

_SEPARATOR = "\x06\x16"
"""Between a queue's name and its priority step: kombu's Redis transport, `priority_steps`."""


def step_of(priority: int) -> int:
    """The priority step of the messages of a job; before them are those whose turn it is."""
    return min(OWN_TURN + 1 + priority // 10, PRIORITY_STEPS[-1])


def list_of(prefix: str, queue: str, step: int) -> str:
    """The list's key; `prefix`: that of all keys of the deployment."""
    return f"{prefix}{queue}{f'{_SEPARATOR}{step}' if step else ''}"


def lists_of(prefix: str, queues: Iterable[str], steps: Iterable[int] = PRIORITY_STEPS) -> Iterator[str]:
    """The keys of these queues and steps."""
    return (list_of(prefix, queue, step) for queue in queues for step in steps)
