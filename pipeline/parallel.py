"""The same work on many things, a few at a time, and stopped together."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, islice
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pipeline.attempt import POLL_INTERVAL, Attempt, CheckedAttempt
from pipeline.outcome import AttemptOver

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T, Attempt], R],
    things: Iterable[T],
    threads: int,
    attempt: Attempt,
) -> Generator[tuple[T, Future[R]], None, None]:
    """The things with their outcomes, in the order in which they end.

    `work` gets the thing and an attempt whose check also raises once the caller has left the loop, so
    that the rest stops at its next piece. Leaving the loop waits for them: no thread outlives its step.
    A thread takes the next thing itself, while fewer than twice as many are begun and not yet seen by the
    caller as there are threads. A single thing costs no thread: its work is done by the caller's.
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
    """A thread has ended: nothing is left to do, or the things could not be taken."""

    fault: Exception | None = None


class _Workers(Generic[T, R]):
    """Threads that take one thing after another."""

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
        """None if there is none yet."""
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
