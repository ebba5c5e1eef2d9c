"""Expensive facts of the whole fleet: asked at most every few seconds, for all pages together."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pipeline.errors import ArklineError, ErrorKind

T = TypeVar("T")

PERIOD = 3.0
"""Seconds that an answer is shown before it is asked again."""

OLD = 15.0
"""Seconds after which a new answer is waited for, because the last one says nothing about now."""

TIMEOUT = 1.0
"""Seconds that a page waits for a new answer; then it shows the old one."""

FIRST_TIMEOUT = 5.0
"""Seconds that a page waits for the first answer of a process."""

_log = logging.getLogger("arkline.web")


class Recent(Generic[T]):
    """The last answer of `ask`. Thread-safe.

    A thread of its own asks, at most one at a time, so that no page waits as long as `ask` takes: an answer
    older than PERIOD is shown once more while it asks again.
    """

    def __init__(self, ask: Callable[[], T], name: str) -> None:
        self._ask = ask
        self._name = name
        self._changed = threading.Condition()
        self._answer: T | None = None
        self._at = float("-inf")
        self._tried = float("-inf")
        self._asking = False
        self._again = False
        self._closed = False
        self._wakes: list[Callable[[], None]] = []

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called after every answer, on the thread that asks: it must not block."""
        self._wakes.append(wake)

    def get(self, first: float = FIRST_TIMEOUT) -> T | None:
        """The answer; None before the first one, or if a server that is needed for it does not answer.

        `first`: seconds to wait for the first answer of a process.
        """
        with self._changed:
            now = time.monotonic()
            if now - max(self._at, self._tried) >= PERIOD:
                self._start()
            if self._asking and now - self._at >= OLD:
                timeout = TIMEOUT if self._at > 0 else first
                self._changed.wait_for(lambda: self._at >= now or not self._asking, timeout)
            return self._answer

    def renew(self) -> None:
        """Ask now, and once more if somebody asks already: what is asked for has changed."""
        with self._changed:
            self._again = self._asking
            self._start()

    def close(self) -> None:
        """Ask nobody any more."""
        with self._changed:
            self._closed = True

    def _start(self) -> None:
        if not self._asking and not self._closed:
            self._asking = True
            threading.Thread(target=self._run, name=f"ask: {self._name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._keep(*self._asked())
            for wake in self._wakes:
                wake()
            with self._changed:
                if not self._again or self._closed:
                    self._asking = False
                    self._changed.notify_all()
                    return
                self._again = False

    def _asked(self) -> tuple[bool, T | None]:
        """Whether there is an answer, and the answer: None if a server does not answer."""
        try:
            return True, self._ask()
        except ArklineError as error:
            if error.error_kind is ErrorKind.UNREACHABLE:
                return True, None
            _log.exception("the pages cannot renew: %s", self._name)
        except Exception:  # noqa: BLE001 - the thread has no caller: the log has the fault
            _log.exception("the pages cannot renew: %s", self._name)
        return False, None

    def _keep(self, answered: bool, answer: T | None) -> None:
        with self._changed:
            self._tried = time.monotonic()
            if answered:
                self._answer, self._at = answer, self._tried
            self._changed.notify_all()
