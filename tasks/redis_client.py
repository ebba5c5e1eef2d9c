"""The client of Redis, as this process uses the server itself: without Celery and kombu."""

from functools import lru_cache

import redis

from pipeline.settings import Settings


@lru_cache(maxsize=8)
def client(settings: Settings, timeout: float = 5.0) -> redis.Redis:
    """One for all commands of a process; `timeout`: seconds to wait for a connection or an answer."""
    return redis.Redis.from_url(settings.broker_url, socket_timeout=timeout, socket_connect_timeout=timeout)
