"""Which faults of HTTP may pass, and how a service is asked again: for every service but content sources.

Sources of content have rules of their own (pipeline.sources): they share the types and statuses here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import requests
import urllib3.exceptions

from pipeline.outcome import system, transient

TRIES = 3
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubles."""
LONGEST_PAUSE = 10.0
"""Seconds to wait at most while the job keeps its worker; a service that asks for more gets the job's next
try."""

TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""Refusals that may pass: request timeout, too early, too many requests. So may every 5xx."""

Answer = TypeVar("Answer")


class TransientError(Exception):
    """The request failed, but may succeed if it is repeated; `str()` says what happened, without a name."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        """Seconds to wait, if the server sent Retry-After."""


def retry_request(request: Callable[[], Answer], service: str, pause: float = FIRST_PAUSE) -> Answer:
    """What `request` returns in one of TRIES tries; StepFailed(transient), with the service, if none does."""
    for tries_left in reversed(range(TRIES)):
        try:
            return request()
        except TransientError as fault:
            wait = pause if fault.retry_after is None else fault.retry_after
            if not tries_left or wait > LONGEST_PAUSE:
                raise transient(f"{service} {fault}", fault.retry_after) from fault
        time.sleep(wait)
        pause *= 2
    raise AssertionError("the last try returns or raises")


@contextmanager
def translated(service: str, remedy: str) -> Iterator[None]:
    """Raise faults of the connection as TransientError, or StepFailed(system) if they need an operator."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise system(f"{service} has no trusted certificate, or does not speak TLS: {remedy}") from error
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise TransientError("did not answer in time") from error
    except (
        requests.ConnectionError,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.HTTPError,
    ) as error:
        raise TransientError("cannot be reached, or the connection broke") from error
    except (requests.RequestException, UnicodeError) as error:
        raise system(f"{service} cannot be contacted ({type(error).__name__}): {remedy}") from error


def raise_if_transient(response: requests.Response) -> None:
    """Raise TransientError if the status is one that may pass."""
    if is_transient(response.status_code):
        raise TransientError(
            f"answered {response.status_code}", retry_after(response.headers.get("Retry-After"))
        )


def is_transient(status: int) -> bool:
    return status >= 500 or status in TRANSIENT_STATUSES


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
