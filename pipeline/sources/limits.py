"""Limits on a source's answers, in time and speed, and the fleet's limits per host.

They keep a slow source from occupying a worker for days, and a host from getting more connections than it can
bear.
"""

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from pipeline.attempt import Attempt, Progress
from pipeline.http.urls import host_of, redact_url
from pipeline.outcome import StepFailed, Stopping
from pipeline.states import FailureKind


@dataclass(frozen=True)
class SourceTimeouts:
    """Timeouts of a source in seconds; values other than the defaults are for tests."""

    headers: float | None = None
    """From a request until the headers of its answer are complete, including redirects. None: two minutes, or
    the settings' connect and read timeouts together if that is longer."""
    answer: float = 86400.0
    """For a whole answer; the rest is then requested, if the source can continue the file."""
    window: float = 60.0
    """Window in which the speed of all files of a job together is measured."""
    turn: float = 3600.0
    """Time after which a download that its source can continue yields its place to other jobs."""
    first_pause: float = 0.5
    """Pause before the second try of a request; doubles with every further try, and varies by up to half."""


TIMEOUTS = SourceTimeouts()

SILENCE = 2.0
"""Seconds without a byte after which the source is reported."""


class TooSlow(StepFailed):
    """A source that takes too long or sends too little: a try, which is not repeated at once."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureKind.TRANSIENT, message)


class Pace:
    """Counts the bytes of all open responses of one attempt together; thread-safe.

    Threads read a response in a `with` block; time without an open response does not count.
    """

    def __init__(self, min_speed: int, timeouts: SourceTimeouts) -> None:
        self._min_speed = min_speed
        self._timeouts = timeouts
        self._mutex = threading.Lock()
        self._open = 0
        self._since = 0.0
        self._bytes = 0
        self._began: float | None = None
        self.heard = 0.0
        """When bytes arrived last."""

    def __enter__(self) -> None:
        with self._mutex:
            now = time.monotonic()
            self._began = self._began or now
            if not self._open:
                self._since, self._bytes = now, 0
            self._open += 1

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._open -= 1

    def check(self, arrived: int = 0) -> None:
        """Count received bytes; TooSlow at the end of a window with too few, while a response is read."""
        with self._mutex:
            self._bytes += arrived
            self.heard = time.monotonic() if arrived else self.heard
            seconds = time.monotonic() - self._since
            if not self._open or seconds < self._timeouts.window:
                return
            speed = self._bytes / seconds
            self._since, self._bytes = time.monotonic(), 0
        if speed < (minimum := self._min_speed):
            raise TooSlow(
                f"the source sends {speed:.0f} bytes per second, less than the minimum of {minimum:,} "
                "(ARKLINE_MIN_SPEED); what has arrived is kept"
            )

    def check_turn(self, attempt: Attempt) -> None:
        """Raise Stopping once the attempt's time is used up: the job is handed back and continues later."""
        if attempt.yields():
            raise Stopping(
                "the download gives its process to a job of another submitter or collection; "
                "the next attempt continues with what has arrived"
            )
        turn = self._timeouts.turn
        if self._began is not None and time.monotonic() - self._began > turn:
            raise Stopping(
                f"the download gives its place to others after {turn:.0f} seconds; "
                "the next attempt continues with what has arrived"
            )


@dataclass
class RequestClock:
    """A clock that starts with a request; `check` ends the request or its answer. Used by one thread."""

    url: str
    attempt: Attempt
    pace: Pace
    headers_within: float
    within: float
    """Maximum seconds for the request and the whole answer."""
    answered: bool = False
    """Whether the headers of the last answer have arrived."""
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """AttemptOver if the attempt is over; TooSlow if the source takes too long or sends too little.

        Reports the host while it sends nothing: only a byte that arrives is reported elsewhere.
        """
        self.attempt.check()
        seconds = time.monotonic() - self.began
        if min(seconds, time.monotonic() - self.pace.heard) > SILENCE:
            self.attempt.report(Progress(host=host_of(self.url)))
        if not self.answered and seconds > self.headers_within:
            raise TooSlow(
                f"{redact_url(self.url)}: the source has not answered within "
                f"{self.headers_within:.0f} seconds, redirects included"
            )
        if seconds > self.within:
            raise TooSlow(
                f"{redact_url(self.url)}: the answer has not ended within {self.within:.0f} seconds"
            )
        self.pace.check()


class HostLimiter:
    """The fleet's limits per host; this class has none, for a process that shares its sources with no other.

    `host`: host and port, as written by urls.place_of.
    """

    def connection(self, host: str, attempt: Attempt) -> AbstractContextManager[None]:
        """Acquire a connection to `host` for the block; waits for a while, then raises RateLimited.

        HostDown if the host recently did not answer, HostGivenUp if it has not for a long time.
        """
        del host, attempt
        return nullcontext()

    def redirected(self, start: str, host: str, attempt: Attempt) -> None:
        """Wait as for a connection, because a request to `start`, which has one, is redirected to `host`."""

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        """Keep all workers from sending requests to the host for that many seconds: it sent Retry-After.

        `cause`: the host's answer, without a URL.
        """

    def no_answer(self, host: str, cause: str) -> None:
        """Report a host not reached, or silent for too long: one worker probes it, the others wait."""

    def answered(self, host: str) -> None:
        """Report that the host answered a request."""


NO_LIMIT = HostLimiter()
