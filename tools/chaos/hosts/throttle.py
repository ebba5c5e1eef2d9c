"""The state of a host's storage, in a small file: the run writes, the pass-through reads at each call."""

import mmap
import struct
import time
from enum import IntEnum
from pathlib import Path

_FORM = struct.Struct("<idd")
"""Trouble, the monotonic time at which the trouble ends, and seconds per call."""


class Trouble(IntEnum):
    NONE = 0
    STALLED = 1
    """No call returns, as from a server of files that does not answer a hard mount."""
    FAILING = 2
    """Each call returns EIO."""
    SLOW = 3


class Throttle:
    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(_FORM.size))
        with file.open("r+b") as stream:
            self._shared = mmap.mmap(stream.fileno(), _FORM.size)

    def set(self, trouble: Trouble, seconds: float = 0.0, per_call: float = 0.0) -> None:
        """Begin a trouble. The trouble ends by itself: a killed process stays until its call returns."""
        self._shared[:] = _FORM.pack(trouble, time.monotonic() + seconds, per_call)

    def clear(self) -> None:
        self.set(Trouble.NONE)

    def get(self) -> tuple[Trouble, float]:
        """The trouble now, and the seconds per call."""
        trouble, until, per_call = _FORM.unpack(self._shared[:])
        if not trouble or time.monotonic() >= until:
            return Trouble.NONE, 0.0
        return Trouble(trouble), per_call
