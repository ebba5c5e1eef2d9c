"""Ctrl-C, SIGTERM and a closed terminal request an orderly stop; a second signal requests an immediate stop.

The handler only counts the signals, and the main loop reads the count: an exception raised in a handler
could interrupt an orderly stop at any line.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    def __init__(self) -> None:
        self.count = 0

    @property
    def received(self) -> bool:
        return self.count > 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Count the signals until the block ends; only in the main thread."""
    signals = StopSignals()
    before = {number: signal.signal(number, signals._receive) for number in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
