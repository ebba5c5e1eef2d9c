"""What Redis says of itself, and the clocks of the workers."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from celery.utils.time import utcoffset

from pipeline.settings import Settings
from tasks import broker
from tasks.redis_keys import client

SECONDS = 3.0
"""For a connection and for an answer."""

HEARTBEATS = 4.0
"""Seconds to wait for heartbeats: a worker sends one every two seconds, and at once when it is asked."""

ON_THE_WAY = 0.5
"""Half of the seconds that a heartbeat takes at most."""


def info(settings: Settings) -> Mapping[str, Any]:
    """The answer to INFO; redis.RedisError if Redis does not answer."""
    return cast(Mapping[str, Any], client(settings, SECONDS).info())


def clock_difference(settings: Settings) -> tuple[float, float]:
    """Seconds by which Redis' clock is ahead of this host's, and the uncertainty of that number."""
    connection = client(settings, SECONDS)
    connection.ping()  # the connection is open
    began = time.time()
    seconds, microseconds = connection.time()
    ended = time.time()
    return seconds + microseconds / 1e6 - (began + ended) / 2, (ended - began) / 2


def workers_clocks(settings: Settings) -> dict[str, tuple[float, float]]:
    """Worker -> the difference of its clock from this host's, by its heartbeats, as that of Redis."""
    differences: dict[str, tuple[float, float]] = {}

    def note(event: Mapping[str, Any]) -> None:
        # Celery moves the time of the event by the difference of the time zones; it is one of UTC already
        sent = event["timestamp"] + (event["utcoffset"] - utcoffset()) * 3600
        differences[str(event["hostname"])] = sent - event["local_received"] + ON_THE_WAY, ON_THE_WAY

    app, deadline = broker.publisher(settings), time.monotonic() + HEARTBEATS
    with app.connection_for_read() as connection, suppress(TimeoutError):
        receiver = app.events.Receiver(connection, handlers={"worker-heartbeat": note})
        for _ in receiver.consume(limit=None, timeout=HEARTBEATS):
            if time.monotonic() > deadline:
                break
    return differences
