"""Requests to services: a single request, which faults are transient, and how requests are retried.

Sources of content have rules of their own (pipeline.sources); they share the statuses defined here.
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
        """Find none: requests would parse the address in any case, and raise ValueError or leak a socket."""
        return None


def request(method: str, url: str, *, stream: bool = False, **options: Any) -> requests.Response:
    """Like `requests.request`, but without redirects; requests.RequestException if there is no answer."""
    with _Session() as session:
        answer = session.request(method, url, allow_redirects=False, stream=True, **options)
    if not stream:
        with answer:  # requests leaves the socket open if the body cannot be decoded
            _ = answer.content
    return answer


TRIES = 3
FIRST_PAUSE = 1.0
"""Seconds before the second try; doubles with every try."""
LONGEST_PAUSE = 10.0
"""Maximum seconds to wait while the job occupies its worker; if a service asks for more, the job itself is
retried later."""

_DIGITS = 300
"""Maximum digits read of a number of seconds: a float has no more."""

TRANSIENT_STATUSES = frozenset({408, 425, 429})
"""Transient refusals: request timeout, too early, too many requests. Every 5xx is transient too."""

Answer = TypeVar("Answer")


def retry_request(
    request: Callable[[], Answer], first_pause: float = FIRST_PAUSE, attempt: Attempt = UNATTENDED
) -> Answer:
    """Call `request` at most TRIES times; raises the last transient failure if all tries fail."""
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
    """Raise connection faults as transient; `remedy` is for faults that an operator must remove."""
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
    """Raise a transient failure if the status is transient."""
    if is_transient(status):
        raise transient(f"{service} answered {status}", retry_after(headers.get("Retry-After")))


def is_transient(status: int) -> bool:
    return status >= 500 or status in TRANSIENT_STATUSES


def retry_after(value: str | None) -> float | None:
    """The seconds that a Retry-After header (a number or a date) asks for, at most LONGEST_RETRY_AFTER.

    None if the header cannot be parsed.
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
    """The time in a header, in UTC, which is also assumed without a zone; None if it is not a valid time."""
    try:
        when = parsedate_to_datetime(value)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
