"""Requests to services: one request, which faults may pass, and how a service is asked again.

Sources of content have rules of their own (pipeline.sources): they share the statuses here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar

import requests
import urllib3.exceptions

from pipeline.attempt import UNATTENDED, Attempt, pause
from pipeline.outcome import LONGEST_RETRY_AFTER, OutcomeUnknown, ServiceDown, StepFailed, transient
from pipeline.states import FailureKind


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """requests parses the address even if none is followed, with ValueError or an open socket left."""
        return None


def request(method: str, url: str, *, stream: bool = False, **options: Any) -> requests.Response:
    """As `requests.request`, without redirects; requests.RequestException if there is no answer."""
    with _Session() as session:
        answer = session.request(method, url, allow_redirects=False, stream=True, **options)
    if not stream:
        with answer:  # requests leaves the socket open if the body cannot be decoded
            _ = answer.content
    return answer


TRIES = 3
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubles."""
LONGEST_PAUSE = 10.0
"""Seconds to wait at most while the job keeps its worker; a service that asks for more gets the job's next
try."""

_DIGITS = 300
"""Digits of a number of seconds that are read: a float has no more."""

TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""Refusals that may pass: request timeout, too early, too many requests. So may every 5xx."""

Answer = TypeVar("Answer")


def retry_request(
    request: Callable[[], Answer], first_pause: float = FIRST_PAUSE, attempt: Attempt = UNATTENDED
) -> Answer:
    """The result of `request` after at most TRIES tries; raises the last transient failure otherwise."""
    next_pause = first_pause
    for tries_left in reversed(range(TRIES)):
        try:
            return request()
        except (OutcomeUnknown, ServiceDown):
            raise
        except StepFailed as fault:
            wait = next_pause if fault.retry_after is None else fault.retry_after
            if fault.kind is not FailureKind.TRANSIENT or not tries_left or wait > LONGEST_PAUSE:
                raise
        pause(wait, attempt)
        next_pause *= 2
    raise AssertionError("the last try returns or raises")


@contextmanager
def translated(service: str, remedy: str) -> Iterator[None]:
    """Raise faults of the connection as transient; `remedy` if an operator must act before they pass."""
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise transient(f"{service} has no trusted certificate, or does not speak TLS: {remedy}") from error
    except urllib3.exceptions.LocationValueError as error:
        raise transient(f"{service} cannot be contacted ({type(error).__name__}): {remedy}") from error
    except requests.Timeout as error:
        raise transient(f"{service} did not answer in time") from error
    except (
        requests.ConnectionError,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.HTTPError,
    ) as error:
        raise transient(f"{service} cannot be reached, or the connection broke") from error
    except (requests.RequestException, UnicodeError) as error:
        raise transient(f"{service} cannot be contacted ({type(error).__name__}): {remedy}") from error


def raise_if_transient(status: int, headers: Mapping[str, str], service: str) -> None:
    """Raise a transient failure if the status is one that may pass."""
    if is_transient(status):
        raise transient(f"{service} answered {status}", retry_after(headers.get("Retry-After")))


def is_transient(status: int) -> bool:
    return status >= 500 or status in TRANSIENT_STATUSES


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, in seconds or as a date; LONGEST_RETRY_AFTER at most.

    None if the header says nothing that can be understood.
    """
    if not value:
        return None
    if (seconds := value.strip()).isascii() and seconds.isdigit():
        return min(LONGEST_RETRY_AFTER, float(seconds.lstrip("0")[:_DIGITS] or 0))
    when = http_date(value)
    if when is None:
        return None
    return min(LONGEST_RETRY_AFTER, max(0.0, (when - datetime.now(UTC)).total_seconds()))


@lru_cache(maxsize=256)  # one server sends the same date with many files
def http_date(value: str) -> datetime | None:
    """The moment that a header names, UTC if it names no zone; None if it names none that there is."""
    try:
        when = parsedate_to_datetime(value)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
