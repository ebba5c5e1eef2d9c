"""How fast and how long a fixity check reads."""

import time
from collections.abc import Callable

LONGEST_SLEEP = 0.5
"""Seconds between two questions whether to stop, while the reading waits for its rate."""

SHORTEST_SLEEP = 0.01
"""Seconds; shorter waits are added up, because a system cannot sleep so briefly."""


class Pace:
    """At most `rate` bytes per second (0: no limit), until `over` is true.

    Time in which nothing was read is not made up for: a pause is not followed by a burst.
    """

    def __init__(self, rate: int, over: Callable[[], bool] = lambda: False) -> None:
        self._rate = rate
        self.over = over
        self._next = time.monotonic()

    def read(self, size: int) -> None:
        """Count `size` bytes, and wait until the rate allows more."""
        if not self._rate:
            return
        self._next = max(self._next, time.monotonic() - SHORTEST_SLEEP) + size / self._rate
        while (left := self._next - time.monotonic()) > SHORTEST_SLEEP and not self.over():
            time.sleep(min(left, LONGEST_SLEEP))
