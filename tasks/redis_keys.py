"""arkline's data in Redis: queues as kombu fills them, progress of attempts, and counts of callbacks.

A queue is a list for each priority step. Progress and counts are not in ZooKeeper: no decision depends on
them, and one write per second and job would burden the record. Losing Redis loses nothing.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import cast

import redis
from pydantic import TypeAdapter, ValidationError

from pipeline.attempt import Attempt, Progress
from pipeline.machine import PRIORITY_STEPS
from pipeline.settings import Settings
from tasks.logs import log


@lru_cache(maxsize=8)
def client(settings: Settings, timeout: float = 5.0) -> redis.Redis:
    """One client for all commands of a process; `timeout`: seconds to wait for a connection or an answer."""
    return redis.Redis.from_url(settings.broker_url, socket_timeout=timeout, socket_connect_timeout=timeout)


OWN_TURN = 0
"""The priority step of a job whose submitter and collection have less than their share of the processes."""

_SEPARATOR = "\x06\x16"
"""Between a queue's name and its priority step: kombu's Redis transport, `priority_steps`."""


def step_of(priority: int) -> int:
    """The priority step of a job's messages; those in OWN_TURN come before them."""
    return min(OWN_TURN + 1 + priority // 10, PRIORITY_STEPS[-1])


def list_of(prefix: str, queue: str, step: int) -> str:
    """The list's key; `prefix`: that of all keys of the deployment."""
    return f"{prefix}{queue}{f'{_SEPARATOR}{step}' if step else ''}"


def lists_of(prefix: str, queues: Iterable[str], steps: Iterable[int] = PRIORITY_STEPS) -> Iterator[str]:
    """The keys of these queues and steps."""
    return (list_of(prefix, queue, step) for queue in queues for step in steps)


TIMEOUT = 1.0
"""Seconds to wait for Redis: short, so that it does not delay a download."""

PROGRESS_LIFETIME = 15
"""Seconds that a report is shown; an attempt that is downloading replaces it every second."""

RETRY_AFTER_FAULT = 30.0
"""Seconds to suspend reports after Redis did not answer."""

_PROGRESS = TypeAdapter(Progress)


class ProgressReports:
    """The progress reports that the attempts of one worker process write."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = client(settings, TIMEOUT)
        self._paused_until = 0.0

    def write(self, jid: str, progress: Progress) -> None:
        if time.monotonic() < self._paused_until:
            return
        key, report = _progress_key(self._settings, jid), _PROGRESS.dump_json(progress)
        try:
            self._client.set(key, report, ex=PROGRESS_LIFETIME)
        except redis.RedisError as error:
            self._paused_until = time.monotonic() + RETRY_AFTER_FAULT
            log().debug("progress not reported", jid=jid, error=str(error))


@dataclass(frozen=True)
class ReportingAttempt:
    """The attempt at a job, whose progress is written where operators can read it."""

    attempt: Attempt
    reports: ProgressReports
    jid: str

    def check(self) -> None:
        self.attempt.check()

    def report(self, progress: Progress) -> None:
        self.reports.write(self.jid, progress)

    def yields(self) -> bool:
        return self.attempt.yields()


def read_progress(settings: Settings, jid: str) -> Progress | None:
    """The last progress report of the job's attempt; None without a recent one or without Redis."""
    try:
        data = client(settings, TIMEOUT).get(_progress_key(settings, jid))
        return _PROGRESS.validate_json(data) if isinstance(data, bytes) else None
    except (redis.RedisError, ValidationError):
        return None


def _progress_key(settings: Settings, jid: str) -> str:
    return f"{settings.broker_prefix}progress:{jid}"


class Outcome(StrEnum):
    DELIVERED = "delivered"
    FAILED = "failed"
    """The receiver did not accept it; a later try may succeed, and is counted too."""


class Counted(StrEnum):
    """What is delivered; also the name of the key that counts it."""

    CALLBACKS = "callbacks"
    NOTIFICATIONS = "notifications"


def delivered(settings: Settings, what: Counted) -> dict[Outcome, int]:
    """Numbers of deliveries since Redis last lost its content; redis.RedisError if it does not answer."""
    counted = client(settings).zrange(f"{settings.broker_prefix}{what}", 0, -1, withscores=True)
    known = {name.decode(): int(number) for name, number in cast(list[tuple[bytes, float]], counted)}
    return {outcome: known.get(outcome, 0) for outcome in Outcome}


def count(settings: Settings, what: Counted, outcome: Outcome) -> None:
    """Count in a sorted set: the fleet's user in Redis may call no other command that increments a number."""
    with suppress(redis.RedisError):
        client(settings, TIMEOUT).zadd(f"{settings.broker_prefix}{what}", {str(outcome): 1}, incr=True)
