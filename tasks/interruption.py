"""Ends a process whose step continues although its attempt is over, or whose interpreter has stopped.

Steps check their attempt between two pieces of work, and requests to sources check it while they wait. The
clients of EZID, S3, mail and SQL have their own timeouts, of up to a minute; a mount that hangs has none. An
exception raised by a signal handler would end such a wait, but might come between two lines that belong
together. Every step tolerates the end of its process: the next attempt handles what a crash leaves.
"""

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipeline.attempt import Attempt
from pipeline.outcome import AttemptOver
from pipeline.settings import Settings
from tasks.logs import log

CHECK_INTERVAL = 0.5
"""Seconds between two checks of the attempt."""

GRACE = 2.5
"""Seconds in which the step may notice by itself that the attempt is over."""

RELEASE_TIME = 5.0
"""Seconds for handing back the record and closing the session, before the process ends."""

EXIT_OVERDUE = os.EX_TEMPFAIL
"""The pool starts another process."""

Release = Callable[[AttemptOver], object]
"""Gives back what the attempt holds in the record; called in another thread than the step's."""


class _Watched:
    """One attempt, while the main thread works on it."""

    def __init__(self, attempt: Attempt, release: Release) -> None:
        self._attempt = attempt
        self._over: AttemptOver | None = None
        self._end_at = 0.0
        self.release = release

    def overdue(self) -> AttemptOver | None:
        """Why the attempt is over, once its step has had the time to notice that."""
        if self._over is None:
            try:
                self._attempt.check()
            except AttemptOver as error:
                self._over, self._end_at = error, time.monotonic() + GRACE
        return self._over if self._over is not None and time.monotonic() >= self._end_at else None


class Interruption:
    """Watches the attempt that the main thread works on, with one thread, which ends with this object.

    A thread per attempt would cost a job of one small file 7 threads.
    """

    def __init__(self, _settings: Settings) -> None:
        self._watched: _Watched | None = None
        threading.Thread(target=_watch, args=(weakref.ref(self),), name="attempt", daemon=True).start()

    @contextmanager
    def when_over(self, attempt: Attempt, release: Release) -> Iterator[None]:
        """End the process if this block continues for GRACE seconds after `attempt.check` says it is over.

        Only for a block in the main thread: the process of a beat has other work.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._watched = _Watched(attempt, release)
        try:
            yield
        finally:
            self._watched = None

    def end_if_overdue(self) -> None:
        watched = self._watched
        if watched is not None:
            try:
                over = watched.overdue()
            except Exception:  # noqa: BLE001 - whatever is wrong is said by the command itself
                log().exception("an attempt could not be checked")
            else:
                if over is not None and self._watched is watched:
                    _end(over, watched.release)


def _watch(reference: weakref.ref[Interruption]) -> None:
    while True:
        time.sleep(CHECK_INTERVAL)
        if (interruption := reference()) is None:
            return
        interruption.end_if_overdue()
        del interruption  # while this thread sleeps, it keeps nothing alive


def _end(over: AttemptOver, release: Release) -> None:
    log().warning("the step continues although its attempt is over: its process ends", reason=str(over))
    releasing = threading.Thread(target=release, args=(over,), name="release", daemon=True)
    releasing.start()
    releasing.join(RELEASE_TIME)
    os._exit(EXIT_OVERDUE)


POSTPONE_INTERVAL = 1.0
"""Seconds between two postponements."""


def start_hang_guard(seconds: float) -> None:
    """End this process once it has used `seconds` of CPU time without running a Python thread.

    CPU time, because a process that was frozen, or that a busy machine does not schedule, is not at fault.
    The CPU time of every thread counts, and those that compute digests run without the GIL: the limit grows
    with the number of processors.

    A library function that does not release the GIL stops every thread: heartbeats, checks and signal
    handlers. The session expires and the sweep dispatches the job to another process, which may hang like the
    first. The kernel needs no interpreter: its timer ends the process unless a thread postpones that in time.
    """
    limit = max(seconds, 2 * POSTPONE_INTERVAL * (os.cpu_count() or 1))
    threading.Thread(target=_postpone, args=(limit,), name="hang-guard", daemon=True).start()


def _postpone(limit: float) -> None:
    while True:
        signal.setitimer(signal.ITIMER_PROF, limit)
        time.sleep(POSTPONE_INTERVAL)
