"""How a long verb reports its progress and learns that it should stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline import codes
from pipeline.errors import ArklineError


class Stopped(ArklineError):
    code = codes.STOPPED


@dataclass(frozen=True)
class Run:
    """One run of a long verb. A verb that stopped can be repeated, and does the rest."""

    on_progress: Callable[[float, int], None] = lambda done, total: None
    """Gets the number of jobs and batches that are done, with a fraction for one that is begun, and their
    total, 0 if it is not known; a reading counts bytes."""
    should_stop: Callable[[], bool] = lambda: False
    """Asked before each job and batch, and inside the deletion of a batch."""

    def check(self, message: str) -> None:
        """Stopped, with this message, if the caller asks to stop."""
        if self.should_stop():
            raise Stopped(message)

    def adding(self, total: int = 0) -> Callable[[int], None]:
        """For work that says how much it did since it said so last."""
        done = 0

        def add(size: int) -> None:
            nonlocal done
            done += size
            self.on_progress(done, total)

        return add

    def part(self, done: int, total: int) -> Run:
        """For the next of `total` jobs and batches, of which `done` are done."""
        return replace(self, on_progress=lambda within, all_: self.on_progress(done + within / all_, total))


UNWATCHED = Run()
"""Nobody sees the progress, and the verb runs to its end."""
