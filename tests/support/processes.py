"""Waiting for a process of a test."""

import time
from collections.abc import Callable

from entrypoints.stack.child import Process

READY_SECONDS = 120.0
"""Seconds that a process may take to be ready on a busy machine."""


def await_ready(process: Process, ready: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
    """Return once `ready` is true; `process-died`, with the end of the log, if it does not become true."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.wait(0.02) is not None or time.monotonic() > deadline:
            raise process.crash_error()
