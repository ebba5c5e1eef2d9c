"""Runs probes at the same time and waits for them for a bounded time: a disk or a server may hang.

A probe that hangs is left behind in its thread, which ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from operations.doctor.line import Line, Todo, line, unknown
from pipeline.errors import ArklineError

LIMIT = 20.0
"""Seconds for all probes together."""

T = TypeVar("T")


class NoAnswer(ArklineError):
    """A call has not ended in time."""


class Started(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._outcome = call, list[T | Exception]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            self._outcome.append(error)

    def result(self, deadline: float) -> T:
        """The result or the exception of the call; NoAnswer at the deadline, of `time.monotonic`."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if not self._outcome:
            raise NoAnswer("no answer in time")
        if isinstance(outcome := self._outcome[0], Exception):
            raise outcome
        return outcome


@dataclass(frozen=True)
class Probe:
    area: str
    name: str
    """Of the line that says why there are no others."""
    examine: Callable[[], Iterable[Line]]
    todo: Todo
    """If the probe has no result."""

    def lines(self, started: Started[tuple[Line, ...]], deadline: float) -> tuple[Line, ...]:
        try:
            lines = started.result(deadline)
        except NoAnswer as late:
            lines = (unknown(self.name, str(late), self.todo),)
        except ArklineError as error:
            lines = (line(self.name, str(error), *(error.remedies or (self.todo,)), wrong=True),)
        except Exception as error:  # noqa: BLE001 - one probe must not hide the others; its line names the error
            lines = (unknown(self.name, f"{type(error).__name__}: {error}", self.todo),)
        return tuple(one.model_copy(update={"area": self.area}) for one in lines)


def examine(probes: Iterable[Probe], limit: float = LIMIT) -> tuple[Line, ...]:
    """The lines of all probes in their order, after at most `limit` seconds."""
    deadline = time.monotonic() + limit
    started = [(one, Started(lambda one=one: tuple(one.examine()))) for one in probes]  # type: ignore[misc]
    return tuple(shown for one, running in started for shown in one.lines(running, deadline))
