"""Ctrl-C, SIGTERM and a closed terminal are one wish: stop in order. A second one: stop at once.

The handler only counts: whoever waits looks at the count. An exception out of a handler could come
between any two lines of an orderly stop.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WISHES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    def __init__(self) -> None:
        self.count = 0

    @property
    def received(self) -> bool:
        return self.count > 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def listening() -> Iterator[StopSignals]:
    """Count the signals until the block ends; only in the main thread."""
    signals = StopSignals()
    before = {number: signal.signal(number, signals._receive) for number in WISHES}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
