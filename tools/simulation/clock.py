"""A clock that can be exchanged, also where a module has kept the function: imported before the project."""

import time
from collections.abc import Callable

REAL = time.monotonic


class _Clock:
    now: Callable[[], float] = staticmethod(REAL)


def monotonic() -> float:
    return _Clock.now()


def use(now: Callable[[], float]) -> None:
    _Clock.now = staticmethod(now)


time.monotonic = monotonic
