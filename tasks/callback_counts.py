"""Counts of the callbacks that workers delivered, in Redis: for metrics, so losing them loses nothing."""

from contextlib import suppress
from enum import StrEnum

import redis

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.retry import FIRST_PAUSE
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.settings import Settings
from tasks.broker import client

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
            _count(self._counted, Delivery.FAILED)
            raise
        if profile.callback_url is not None:
            _count(self._counted, Delivery.DELIVERED)


def read(settings: Settings) -> dict[Delivery, int]:
    """Deliveries since Redis lost its content last; redis.RedisError."""
    names = tuple(Delivery)
    values = client(settings).hmget(_key(settings), *names)
    assert isinstance(values, list)  # the types of redis allow for an asynchronous client
    return {name: int(value or 0) for name, value in zip(names, values, strict=True)}


def _count(settings: Settings, outcome: Delivery) -> None:
    with suppress(redis.RedisError):
        client(settings, TIMEOUT).hincrby(_key(settings), outcome, 1)


def _key(settings: Settings) -> str:
    return f"{settings.broker_prefix}callbacks"
