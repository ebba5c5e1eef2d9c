"""One attempt at a step: whether it may continue, and its progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

CHECK_INTERVAL = 1.0
"""Seconds between two checks of a throttled attempt."""


@dataclass(frozen=True)
class Progress:
    """The progress of an attempt; for display only, no decision depends on it."""

    file: str = ""
    """The path, in the object, of the file that moved last."""
    host: str = ""
    bytes: int = 0
    """Bytes of all files so far."""
    bytes_expected: int | None = None
    """None if the size of a file is not known."""
    files: int = 0
    """Files that are complete."""
    files_expected: int | None = None
    bytes_per_second: float | None = None
    """Over the last seconds; None if it is not measured yet."""


class Attempt(Protocol):
    """One attempt of a worker at a job or a batch. Several threads may use it at a time."""

    def check(self) -> None:
        """Raise AttemptOver if the lock may be lost, the job was taken away, or the worker is stopping.

        Called between pieces of long work and before every effect.
        """

    def report(self, progress: Progress) -> None:
        """Accept live progress; cheap enough to be called for every piece."""


class Unattended:
    """Work outside a job: never interrupted, and without progress reports."""

    def check(self) -> None:
        """Never raises."""

    def report(self, progress: Progress) -> None:
        del progress


UNATTENDED: Attempt = Unattended()


@dataclass(frozen=True)
class CheckedAttempt:
    """An attempt with a separate check; its progress is that of `attempt`."""

    check: Callable[[], None]
    attempt: Attempt = UNATTENDED

    def report(self, progress: Progress) -> None:
        self.attempt.report(progress)


def throttled(attempt: Attempt) -> Attempt:
    """The attempt, checked at most once in CHECK_INTERVAL: a check may ask a server."""
    last = 0.0

    def check() -> None:
        nonlocal last
        if time.monotonic() - last >= CHECK_INTERVAL:
            attempt.check()
            last = time.monotonic()

    return CheckedAttempt(check, attempt)
