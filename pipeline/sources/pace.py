"""How fast the sources of one attempt send, so that a slow one does not occupy a worker for days."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.attempt import Attempt
from pipeline.outcome import StepFailed, Stopping
from pipeline.settings import Settings
from pipeline.states import FailureKind


class TooSlow(StepFailed):
    """A source that takes too long or sends too little: a try, which is not repeated at once."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureKind.TRANSIENT, message)


class Pace:
    """The bytes of all open responses of one attempt together; several threads may add to them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mutex = threading.Lock()
        self._open = 0
        self._since = 0.0
        self._bytes = 0
        self._began: float | None = None

    @contextmanager
    def response(self) -> Iterator[None]:
        """A response is read in this block; time without any does not count."""
        with self._mutex:
            now = time.monotonic()
            self._began = self._began or now
            if not self._open:
                self._since, self._bytes = now, 0
            self._open += 1
        try:
            yield
        finally:
            with self._mutex:
                self._open -= 1

    def add(self, count: int) -> None:
        """Count bytes that arrived."""
        with self._mutex:
            self._bytes += count
        self.check()

    def check(self) -> None:
        """TooSlow at the end of a window with too few bytes, while a response is read."""
        with self._mutex:
            seconds = time.monotonic() - self._since
            if not self._open or seconds < self._settings.slow_after:
                return
            speed = self._bytes / seconds
            self._since, self._bytes = time.monotonic(), 0
        if speed < (minimum := self._settings.min_speed):
            raise TooSlow(
                f"the source sends {speed:.0f} bytes per second, less than the minimum of {minimum:,} "
                "(ARKLINE_MIN_SPEED); what has arrived is kept"
            )

    def check_turn(self, attempt: Attempt) -> None:
        """Stopping after the turn of the attempt: the job is handed back, and continues later."""
        if attempt.yields():
            raise Stopping(
                "the download gives its process to a job of another submitter or collection "
                "(ARKLINE_SHARE_OF_PROCESSES); the next attempt continues with what has arrived"
            )
        turn = self._settings.download_turn
        if self._began is not None and time.monotonic() - self._began > turn:
            raise Stopping(
                f"the download gives its place to others after {turn:.0f} seconds (ARKLINE_DOWNLOAD_TURN); "
                "the next attempt continues with what has arrived"
            )
