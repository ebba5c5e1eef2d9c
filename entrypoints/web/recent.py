"""Answers that are expensive, kept for some seconds for all requests of the process."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pipeline.codes import ErrorKind
from pipeline.errors import ArklineError

T = TypeVar("T")

PERIOD = 3.0
"""Seconds for which an answer is shown before it is renewed."""

OLD = 15.0
"""Seconds after which a page waits for a new answer, because the last one is too old."""

TIMEOUT = 1.0
"""Seconds that a page waits for a new answer before it shows the old one."""

FIRST_TIMEOUT = 5.0
"""Seconds that a page waits for the process's first answer."""

_log = logging.getLogger("arkline.web")


class Recent(Generic[T]):
    """The last answer of `ask`. Thread-safe.

    A single thread calls `ask`, so that no page waits for as long as that takes: an answer older than
    `period` is shown once more while a new one is fetched, unless it is `old`.
    """

    def __init__(self, ask: Callable[[], T], name: str, period: float = PERIOD, old: float = OLD) -> None:
        self._ask = ask
        self._name = name
        self._period = period
        self._old = old
        self._changed = threading.Condition()
        self._answer: T | None = None
        self._at = float("-inf")
        self._tried = float("-inf")
        self._asking = False
        self._again = False
        self._closed = False
        self._wakes: list[Callable[[], None]] = []

    @property
    def last(self) -> T | None:
        """The last answer, without asking."""
        return self._answer

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every answer, in the asking thread: it must not block."""
        self._wakes.append(wake)

    def get(self, first: float = FIRST_TIMEOUT) -> T | None:
        """The answer; None before the first one, or if a server that it needs does not answer.

        `first`: seconds to wait for the process's first answer.
        """
        with self._changed:
            now = time.monotonic()
            if now - max(self._at, self._tried) >= self._period:
                self._start()
            if self._asking and now - self._at >= self._old:
                timeout = TIMEOUT if self._at > 0 else first
                self._changed.wait_for(lambda: self._at >= now or not self._asking, timeout)
            return self._answer

    def renew(self) -> None:
        """Ask now, and again after a query in progress: its subject has changed."""
        with self._changed:
            self._again = self._asking
            self._start()

    def close(self) -> None:
        """Stop asking."""
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
        except Exception:  # noqa: BLE001 - logged: it is asked again
            _log.exception("the pages cannot renew: %s", self._name)
        return False, None

    def _keep(self, answered: bool, answer: T | None) -> None:
        with self._changed:
            self._tried = time.monotonic()
            if answered:
                self._answer, self._at = answer, self._tried
            self._changed.notify_all()
