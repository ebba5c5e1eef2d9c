"""Waiting for what cannot be waited for by an event: it is asked for again."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.05
"""Seconds between two questions."""


def eventually(found: Callable[[], T | None], seconds: float = 60.0) -> T:
    """The first true value of `found`."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(PAUSE)
    return value
