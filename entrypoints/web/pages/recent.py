"""Expensive facts of the whole fleet: asked at most every few seconds, for all pages together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pipeline.errors import ArklineError, ErrorKind

T = TypeVar("T")

PERIOD = 3.0
"""Seconds that an answer is shown before it is asked again."""


class Recent(Generic[T]):
    """The last answer of `ask`. Thread-safe.

    An answer older than PERIOD is shown once more while one thread asks again, so that no page waits, except
    the first one after a pause of ten periods.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._mutex = threading.Lock()
        self._asking = threading.Lock()
        self._answer: T | None = None
        self._at = float("-inf")

    def get(self) -> T | None:
        """The answer; None if a server that is needed for it does not answer."""
        with self._mutex:
            answer, since = self._answer, time.monotonic() - self._at
        if since < PERIOD:
            return answer
        if since > 10 * PERIOD:
            with self._asking:
                if time.monotonic() - self._at > PERIOD:
                    self._renew()
            return self._answer
        if self._asking.acquire(blocking=False):
            threading.Thread(target=self._renew_and_release, name="ask the fleet", daemon=True).start()
        return answer

    def _renew_and_release(self) -> None:
        try:
            self._renew()
        finally:
            self._asking.release()

    def _renew(self) -> None:
        answer: T | None
        try:
            answer = self._ask()
        except ArklineError as error:
            if error.error_kind is not ErrorKind.UNREACHABLE:
                raise
            answer = None
        with self._mutex:
            self._answer, self._at = answer, time.monotonic()
