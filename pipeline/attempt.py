"""One attempt at a step: whether it may continue, its progress, its record of the job, its parallel work."""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from pipeline.outcome import AttemptOver, Promised
from pipeline.records import Identifiers, Job

CHECK_INTERVAL = 1.0
"""Seconds between two checks of a throttled attempt."""

POLL_INTERVAL = 0.2
"""Seconds between two checks of the attempt while waiting."""


@dataclass(frozen=True)
class Progress:
    """The progress of an attempt; for display only, no decision depends on it."""

    file: str = ""
    """The path, in the object, of the file that made progress last."""
    host: str = ""
    bytes: int = 0
    """Bytes of all files so far."""
    bytes_expected: int | None = None
    """None if the size of a file is not known."""
    files: int = 0
    """Files that are complete."""
    files_expected: int | None = None
    bytes_per_second: float | None = None
    """Average of the last seconds; None until it is measured."""


class Attempt(Protocol):
    """One attempt of a worker at a job or a batch. Several threads may use it at a time."""

    def check(self) -> None:
        """Raise AttemptOver if the lock may be lost, the job was taken away, or the worker is stopping.

        Called between chunks of long work and before every external effect.
        """

    def report(self, progress: Progress) -> None:
        """Report live progress; cheap enough to call for every chunk."""

    def yields(self) -> bool:
        """True if work that a later attempt can continue should end: jobs of others wait for its process."""


@dataclass(frozen=True)
class CheckedAttempt:
    """An attempt built from its functions."""

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
    """Sleep, checking the attempt every POLL_INTERVAL."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        attempt.check()
        threading.Event().wait(min(POLL_INTERVAL, left))


def throttled(attempt: Attempt) -> Attempt:
    """The attempt, checked at most once per CHECK_INTERVAL, because a check may query a server.

    The caller has just checked the attempt, so the first check also waits for an interval.
    """
    last = time.monotonic()

    def check() -> None:
        nonlocal last
        if time.monotonic() - last >= CHECK_INTERVAL:
            attempt.check()
            last = time.monotonic()

    return CheckedAttempt(check, attempt.report, attempt.yields)


class WorkCounter:
    """Counts the files and bytes that an attempt has processed, reports the totals and checks the attempt."""

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
    """The record's data about working storage."""

    def was_marked(self) -> bool:
        """Whether a folder has been marked as this record's working storage."""

    def note_marked(self) -> None: ...

    def reservations(self) -> Mapping[str, int]:
        """Bytes of working storage reserved, by job."""


NameAfter = Callable[[int], tuple[int, str]]
"""Last number taken -> next number to take, and its name."""


class ArkRecord(Protocol):
    """What a minter needs of the record of a job."""

    def mint(
        self, job: Job, counter: str, name_after: NameAfter, identifiers: Identifiers | None = None
    ) -> str:
        """Take a number of `counter` and write its identifier, atomically.

        `name_after(last)` gives the number to take after the last one, and the identifier of that number; it
        may be called several times. A job that has a primary id keeps it: minting twice is impossible.
        `identifiers`: those without a primary id to be written with it; None: the current ones.
        """


class JobRecord(ArkRecord, Protocol):
    """The record of a job in progress, which zkstate keeps; every write is fenced by the job's attempt."""

    def identifiers(self, job: Job) -> Identifiers:
        """The current identifiers."""

    def write_identifiers(self, job: Job, identifiers: Identifiers) -> None:
        """Replace the job's identifiers immediately; AttemptOver if this attempt is no longer the owner."""

    def agreed_versions(self, job: Job) -> Mapping[str, int]:
        """`new_version_of` of the job's submission, which is too large to be kept with every job."""

    def exclusive(self, kind: str, name: str) -> AbstractContextManager[None]:
        """A fleet-wide lock on (kind, name); waits, and raises StepFailed(transient) on timeout."""

    def fence(self, job: Job) -> None:
        """Read from the record whether this attempt still owns the job; AttemptOver if not.

        Called right before an effect that cannot be undone.
        """

    def collection_held(self, profile_name: str) -> bool:
        """True while the collection is on hold."""

    def promised(self) -> Promised:
        """The working storage promised to all jobs."""

    def reserve(self, job: Job, needed: int, counted: Promised) -> bool:
        """Reserve `needed` bytes for the job instead of what it has; False if `counted` may be outdated.

        AttemptOver if this attempt is no longer the owner.
        """

    @property
    def working_storage(self) -> WorkingStorageRecord:
        """The mark and the reservations of working storage."""


T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T, Attempt], R],
    things: Iterable[T],
    threads: int,
    attempt: Attempt,
) -> Generator[tuple[T, Future[R]], None, None]:
    """Run `work` on the things in parallel; yields things and outcomes in order of completion.

    `work` gets a thing and an attempt whose check also raises once the caller has left the loop, so that
    running work stops at its next chunk. Leaving the loop joins the threads: none outlives its step.
    Threads take the next thing themselves, as long as fewer than twice as many things as threads have begun
    without having reached the caller. A single thing runs in the caller's thread.
    """
    waiting = iter(things)
    first = list(islice(waiting, max(2, threads)))
    if len(first) < 2:
        for thing in first:
            yield thing, _done(work, thing, attempt)
        return
    workers = _Workers(work, chain(first, waiting), attempt)
    running = min(threads, len(first))
    workers.start(running)
    try:
        while running:
            attempt.check()
            outcome = workers.next_outcome()
            if isinstance(outcome, _Ended):
                running -= 1
                if outcome.fault is not None:
                    raise outcome.fault
            elif outcome is not None:
                yield outcome
                workers.places.put(True)
    finally:
        workers.stop()


@dataclass(frozen=True)
class _Ended:
    """The end of a thread: nothing is left to do, or taking the next thing failed."""

    fault: Exception | None = None


class _Workers(Generic[T, R]):
    """Threads that process one thing after another."""

    def __init__(self, work: Callable[[T, Attempt], R], things: Iterator[T], attempt: Attempt) -> None:
        self._work = work
        self._things = things
        self._mutex = threading.Lock()
        """Held while the next thing is taken."""
        self._left = threading.Event()
        self._attempt = attempt
        self._threads: list[threading.Thread] = []
        self.places: SimpleQueue[bool] = SimpleQueue()
        """True: one more thing may begin."""
        self._outcomes: SimpleQueue[tuple[T, Future[R]] | _Ended] = SimpleQueue()

    def start(self, threads: int) -> None:
        for _ in range(2 * threads):
            self.places.put(True)
        for _ in range(threads):
            thread = threading.Thread(target=self._run, name="in parallel", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Interrupt the threads and wait for them."""
        self._left.set()
        for _ in self._threads:
            self.places.put(False)
        for thread in self._threads:
            thread.join()

    def next_outcome(self) -> tuple[T, Future[R]] | _Ended | None:
        """The next outcome; None if there is none within POLL_INTERVAL."""
        try:
            return self._outcomes.get(timeout=POLL_INTERVAL)
        except Empty:
            return None

    def _run(self) -> None:
        inside = CheckedAttempt(self._check, self._attempt.report, self._attempt.yields)
        try:
            while self.places.get() and not self._left.is_set():
                with self._mutex:
                    thing = next(self._things)
                self._outcomes.put((thing, _done(self._work, thing, inside)))
            self._outcomes.put(_Ended())
        except StopIteration:
            self._outcomes.put(_Ended())
        except Exception as fault:  # noqa: BLE001 - the caller raises it
            self._outcomes.put(_Ended(fault))

    def _check(self) -> None:
        if self._left.is_set():
            raise AttemptOver("the step has ended")
        self._attempt.check()


def _done(work: Callable[[T, Attempt], R], thing: T, attempt: Attempt) -> Future[R]:
    done: Future[R] = Future()
    try:
        done.set_result(work(thing, attempt))
    except Exception as error:  # noqa: BLE001 - the caller raises the exception
        done.set_exception(error)
    return done
