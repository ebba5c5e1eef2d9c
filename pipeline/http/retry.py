"""Asking a service again after a fault that may pass, before the job itself has to come back to it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from pipeline.outcome import transient

TRIES = 3
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubles."""
LONGEST_PAUSE = 10.0
"""Seconds to wait here at most; a service that asks for more is asked again by the job's next try."""

Answer = TypeVar("Answer")


class Passing(Exception):
    """The service did not do it, but may the next time."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait
        """Seconds that the service asked us to wait, if it did."""


def retry_request(ask: Callable[[], Answer], service: str, pause: float = FIRST_PAUSE) -> Answer:
    """What `ask` answers in one of TRIES tries; StepFailed(transient), naming the service, if none does."""
    for tries_left in reversed(range(TRIES)):
        try:
            return ask()
        except Passing as fault:
            wait = pause if fault.wait is None else fault.wait
            if not tries_left or wait > LONGEST_PAUSE:
                raise transient(f"{service} {fault}", fault.wait) from fault
        time.sleep(wait)
        pause *= 2
    raise AssertionError("the last try answers or raises")


PASSING = {408, 425, 429}
"""Refusals that time may heal: timed out, too early, too many requests. Beside them all of 5xx."""


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given in seconds or as a date."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:  # "-0000": UTC, by RFC 5322
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
