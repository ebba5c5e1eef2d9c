"""Counts of the callbacks that workers delivered, in Redis: for metrics, so losing them loses nothing."""

from contextlib import suppress
from enum import StrEnum
from typing import cast

import redis

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.retry import FIRST_PAUSE
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.settings import Settings
from tasks.redis_client import client

TIMEOUT = 1.0
"""Seconds to wait for Redis: a delivery must not wait for it."""


class Delivery(StrEnum):
    DELIVERED = "delivered"
    FAILED = "failed"
    """The receiver did not take it; a later try may succeed, and is counted too."""


class CountedCallback(HttpCallback):
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        super().__init__(settings, pause)
        self._counted = settings

    def deliver(self, job: Job, profile: Profile, version: int | None, attempt: Attempt = UNATTENDED) -> None:
        try:
            super().deliver(job, profile, version, attempt)
        except StepFailed:
            count(self._counted, Delivery.FAILED)
            raise
        if profile.callback_url is not None:
            count(self._counted, Delivery.DELIVERED)


def read(settings: Settings) -> dict[Delivery, int]:
    """Deliveries since Redis lost its content last; redis.RedisError."""
    counted = client(settings).zrange(_key(settings), 0, -1, withscores=True)
    known = {name.decode(): int(number) for name, number in cast(list[tuple[bytes, float]], counted)}
    return {outcome: known.get(outcome, 0) for outcome in Delivery}


def count(settings: Settings, outcome: Delivery) -> None:
    """In a sorted set: the fleet's user in Redis has the right to no other command that adds to a number."""
    with suppress(redis.RedisError):
        client(settings, TIMEOUT).zadd(_key(settings), {str(outcome): 1}, incr=True)


def _key(settings: Settings) -> str:
    return f"{settings.broker_prefix}callbacks"
