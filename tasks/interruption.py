"""Ends a step that waits inside a library although its attempt is over.

Steps check their attempt between two pieces of work, and requests to sources ask it while they wait. The
clients of EZID, S3, mail and SQL have timeouts of their own, of up to a minute. A signal interrupts what they
wait for: Python then runs the handler, and what the handler raises leaves the library.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.attempt import Attempt
from pipeline.outcome import AttemptOver, Stopping

CHECK_INTERVAL = 0.5
"""Seconds between two checks of the attempt."""

GRACE = 2.5
"""Seconds in which the step may notice by itself that the attempt is over."""

_SIGNAL = signal.SIGUSR2
"""Celery uses SIGUSR1 for its own time limits."""


@contextmanager
def interrupted_when_over(attempt: Attempt) -> Iterator[None]:
    """Raise in this block what `attempt.check` raises, GRACE seconds after the attempt is over.

    Python runs signal handlers in the main thread: elsewhere, as in beat, nothing is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    over: list[AttemptOver | Stopping] = []

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if over and not ended.is_set():
            raise over[0]

    before = signal.signal(_SIGNAL, interrupt)
    watcher = threading.Thread(target=_watch, args=(attempt, ended, over), name="attempt", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        signal.signal(_SIGNAL, before)


def _watch(attempt: Attempt, ended: threading.Event, over: list[AttemptOver | Stopping]) -> None:
    while not ended.wait(CHECK_INTERVAL):
        try:
            attempt.check()
        except (AttemptOver, Stopping) as error:
            over.append(error)
            break
    # again and again: a library may take the first exception for a fault of its own, and repeat its request
    while not ended.wait(GRACE):
        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
