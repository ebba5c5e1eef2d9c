"""Live progress of attempts, in Redis under a key that expires, and counts of delivered
callbacks: losing either loses nothing.

ZooKeeper is not asked: a write per second and job would load the record, and nothing is decided by progress.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import redis
from pydantic import TypeAdapter, ValidationError

from pipeline.attempt import UNATTENDED, Attempt, Progress
from pipeline.http.service import FIRST_PAUSE
from pipeline.notify.callback import HttpCallback
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.settings import Settings
from tasks.logs import log
from tasks.queue_lists import client

LIFETIME = 15
"""Seconds that a report is shown; an attempt that is downloading replaces it every second."""

TIMEOUT = 1.0
"""Seconds to wait for Redis: a download must not wait for it."""

RETRY_AFTER_FAULT = 30.0
"""Seconds without reports after Redis did not answer."""

_PROGRESS = TypeAdapter(Progress)


class ProgressReports:
    """Written by the attempts of one worker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = client(settings, TIMEOUT)
        self._paused_until = 0.0

    def write(self, jid: str, progress: Progress) -> None:
        if time.monotonic() < self._paused_until:
            return
        try:
            self._client.set(_key(self._settings, jid), _PROGRESS.dump_json(progress), ex=LIFETIME)
        except redis.RedisError as error:
            self._paused_until = time.monotonic() + RETRY_AFTER_FAULT
            log().debug("progress not reported", jid=jid, error=str(error))


@dataclass(frozen=True)
class ReportingAttempt:
    """The attempt at a job, with its progress written where operators read it."""

    attempt: Attempt
    reports: ProgressReports
    jid: str

    def check(self) -> None:
        self.attempt.check()

    def report(self, progress: Progress) -> None:
        self.reports.write(self.jid, progress)

    def yields(self) -> bool:
        return self.attempt.yields()


def read(settings: Settings, jid: str) -> Progress | None:
    """The last progress report of the job's attempt; None without a recent one or without Redis."""
    try:
        data = client(settings, TIMEOUT).get(_key(settings, jid))
        return _PROGRESS.validate_json(data) if isinstance(data, bytes) else None
    except (redis.RedisError, ValidationError):
        return None


def _key(settings: Settings, jid: str) -> str:
    return f"{settings.broker_prefix}progress:{jid}"


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
            count_delivery(self._counted, Delivery.FAILED)
            raise
        if profile.callback_url is not None:
            count_delivery(self._counted, Delivery.DELIVERED)


def delivered(settings: Settings) -> dict[Delivery, int]:
    """Deliveries since Redis lost its content last; redis.RedisError."""
    counted = client(settings).zrange(_callbacks_key(settings), 0, -1, withscores=True)
    known = {name.decode(): int(number) for name, number in cast(list[tuple[bytes, float]], counted)}
    return {outcome: known.get(outcome, 0) for outcome in Delivery}


def count_delivery(settings: Settings, outcome: Delivery) -> None:
    """In a sorted set: the fleet's user in Redis has the right to no other command that adds to a number."""
    with suppress(redis.RedisError):
        client(settings, TIMEOUT).zadd(_callbacks_key(settings), {str(outcome): 1}, incr=True)


def _callbacks_key(settings: Settings) -> str:
    return f"{settings.broker_prefix}callbacks"
