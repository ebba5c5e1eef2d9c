"""One attempt at a step: whether it may continue, its progress, and the job's record as the step sees it."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pipeline.outcome import AttemptOver, Promised
from pipeline.records import Identifiers, Job

CHECK_INTERVAL = 1.0
"""Seconds between two checks of a throttled attempt."""

POLL_INTERVAL = 0.2
"""Seconds between two checks of the attempt, while nothing is done."""


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

    def yields(self) -> bool:
        """True if work that a later attempt can continue should end: jobs of others wait for its process."""


@dataclass(frozen=True)
class CheckedAttempt:
    """An attempt made of its two functions."""

    check: Callable[[], None]
    report: Callable[[Progress], None] = lambda progress: None
    yields: Callable[[], bool] = lambda: False


UNATTENDED: Attempt = CheckedAttempt(lambda: None)
"""Work outside a job: never interrupted, and without progress reports."""


def is_over(attempt: Attempt) -> bool:
    try:
        attempt.check()
    except AttemptOver:
        return True
    return False


def pause(seconds: float, attempt: Attempt) -> None:
    """Wait, and check the attempt meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        attempt.check()
        threading.Event().wait(min(POLL_INTERVAL, left))


def throttled(attempt: Attempt) -> Attempt:
    """The attempt, checked at most once in CHECK_INTERVAL: a check may ask a server.

    The caller has checked it a moment ago, so that the first check comes after an interval too.
    """
    last = time.monotonic()

    def check() -> None:
        nonlocal last
        if time.monotonic() - last >= CHECK_INTERVAL:
            attempt.check()
            last = time.monotonic()

    return CheckedAttempt(check, attempt.report, attempt.yields)


class WorkCounter:
    """The files and bytes that an attempt has worked on; reports the sums and checks the attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._files = 0
        self._bytes = 0

    def begin_file(self) -> None:
        self._files += 1
        self.add(0)

    def add(self, size: int) -> None:
        self._bytes += size
        self._attempt.report(Progress(bytes=self._bytes, files=self._files))
        self._attempt.check()


class WorkingStorageRecord(Protocol):
    """What the record knows of working storage."""

    def was_marked(self) -> bool:
        """A folder was marked as working storage of this record."""

    def note_marked(self) -> None: ...

    def reservations(self) -> Mapping[str, int]:
        """Bytes of working storage reserved, by job."""


NameAfter = Callable[[int], tuple[int, str]]
"""The last number that was taken -> the next number to take, and its name."""


class JobRecord(Protocol):
    """The record of a job in progress, which zkstate keeps; every write is fenced by the job's attempt."""

    def identifiers(self, job: Job) -> Identifiers:
        """The current identifiers."""

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        """Replace the job's identifiers at once; AttemptOver if this attempt is no longer the owner."""

    def mint(
        self, job: Job, counter: str, name_after: NameAfter, identifiers: Identifiers | None = None
    ) -> str:
        """Take a number of `counter` and write its identifier, atomically.

        `name_after(last)` gives the number to take after the last one, and the identifier of that number; it
        may be called several times. A job that has a primary id keeps it: minting twice is impossible.
        `identifiers`: those without a primary id to be written with it; None: the current ones.
        """

    def exclusive(self, kind: str, name: str) -> AbstractContextManager[None]:
        """A lock on (kind, name) in the fleet; waits, StepFailed(transient) if that takes too long."""

    def fence(self, job: Job) -> None:
        """Read from the record whether this attempt still owns the job; AttemptOver if not.

        Called right before an effect that cannot be undone.
        """

    def collection_held(self, profile_name: str) -> bool:
        """True while the collection is on hold."""

    def promised(self) -> Promised:
        """Working storage promised to all jobs."""

    def reserve(self, job: Job, needed: int, counted: Promised) -> bool:
        """Reserve `needed` bytes for the job instead of what it has; False if `counted` may be outdated.

        AttemptOver if this attempt is no longer the owner.
        """

    @property
    def working_storage(self) -> WorkingStorageRecord:
        """Its mark and its reservations."""
