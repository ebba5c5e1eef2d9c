"""Ends a process of a worker whose interpreter has stopped.

A function of a library that keeps the interpreter's lock stops every thread: heartbeats, checks and signal
handlers. The session expires and the sweep gives the job to another process, which may hang like the first.
The kernel needs no interpreter: it ends the process unless a thread postpones that in time.
"""

import os
import signal
import threading
import time

POSTPONE_INTERVAL = 1.0
"""Seconds between two postponements."""


def start(seconds: float) -> None:
    """End this process once it has used `seconds` of processor time without running a thread of Python.

    Processor time, because a process that was frozen, or that a busy machine does not run, is not to blame.
    In that time every thread counts, and those that compute digests run without the lock: more processors,
    more seconds.
    """
    limit = max(seconds, 2 * POSTPONE_INTERVAL * (os.cpu_count() or 1))
    threading.Thread(target=_postpone, args=(limit,), name="hang-guard", daemon=True).start()


def _postpone(limit: float) -> None:
    while True:
        signal.setitimer(signal.ITIMER_PROF, limit)
        time.sleep(POSTPONE_INTERVAL)
