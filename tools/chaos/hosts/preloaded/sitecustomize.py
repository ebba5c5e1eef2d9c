"""Python under libfaketime 0.9.10, whose clock_nanosleep refuses each absolute time: EINVAL from time.sleep.

The folder is on the path only of programs on a host, whose clock a fault may move.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex) -> None:
    seconds = float(seconds)
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
