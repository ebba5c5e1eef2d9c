"""Ends a step that waits inside a library although its attempt is over.

Steps check their attempt between two pieces of work, and requests to sources ask it while they wait. The
clients of EZID, S3, mail and SQL have timeouts of their own, of up to a minute. A signal interrupts what they
wait for: Python then runs the handler, and what the handler raises leaves the library.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.attempt import Attempt
from pipeline.outcome import AttemptOver, Stopping
from pipeline.settings import Settings
from tasks.logs import log

CHECK_INTERVAL = 0.5
"""Seconds between two checks of the attempt."""

GRACE = 2.5
"""Seconds in which the step may notice by itself that the attempt is over."""

_SIGNAL = signal.SIGUSR2
"""Celery uses SIGUSR1 for its own time limits."""


class _Watched:
    """One attempt, while the main thread works on it."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._interrupt_at = 0.0
        self.over: AttemptOver | Stopping | None = None

    def interrupt_when_over(self) -> None:
        if self.over is None:
            try:
                self._attempt.check()
            except (AttemptOver, Stopping) as error:
                self.over, self._interrupt_at = error, time.monotonic() + GRACE
        elif time.monotonic() >= self._interrupt_at:
            # again and again: a library may take the exception for a fault of its own, and repeat its request
            self._interrupt_at = time.monotonic() + GRACE
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)


class Interruption:
    """Of one process: one thread looks at whichever attempt the main thread works on.

    A thread for every attempt would cost a job of one small file 7 threads.
    """

    def __init__(self, _settings: Settings) -> None:
        self._watched: _Watched | None = None
        threading.Thread(target=self._watch, name="attempt", daemon=True).start()

    @contextmanager
    def when_over(self, attempt: Attempt) -> Iterator[None]:
        """Raise in this block what `attempt.check` raises, GRACE seconds after the attempt is over.

        Python runs signal handlers in the main thread: elsewhere, as in beat, nothing is interrupted.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        watched = _Watched(attempt)

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            if watched.over is not None and self._watched is watched:
                raise watched.over

        before = signal.signal(_SIGNAL, interrupt)
        self._watched = watched
        try:
            yield
        finally:
            self._watched = None
            signal.signal(_SIGNAL, before)

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_INTERVAL)
            watched = self._watched
            if watched is not None:
                try:
                    watched.interrupt_when_over()
                except Exception:  # noqa: BLE001 - the next attempt has to be watched too
                    log().exception("an attempt could not be checked")
