"""How a long verb reports progress and learns that it should stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline import codes
from pipeline.errors import ArklineError


class Stopped(ArklineError):
    code = codes.STOPPED


@dataclass(frozen=True)
class Run:
    """One run of a long verb. A verb that was stopped can be repeated, and does the rest."""

    on_progress: Callable[[float, int], None] = lambda done, total: None
    """Called with the number of jobs and batches done, including the fraction of a current one, and their
    total (0 if unknown); a reading counts bytes."""
    should_stop: Callable[[], bool] = lambda: False
    """Called before each job and batch, and during the deletion of a batch."""

    def check(self, message: str) -> None:
        """Raise Stopped with this message if the caller has asked to stop."""
        if self.should_stop():
            raise Stopped(message)

    def adding(self, total: int = 0) -> Callable[[int], None]:
        """A progress callback for work that reports increments."""
        done = 0

        def add(size: int) -> None:
            nonlocal done
            done += size
            self.on_progress(done, total)

        return add

    def part(self, done: int, total: int) -> Run:
        """The run of the next of `total` jobs and batches, of which `done` are done."""
        return replace(self, on_progress=lambda within, all_: self.on_progress(done + within / all_, total))


UNWATCHED = Run()
"""Reports no progress, and runs the verb to its end."""
