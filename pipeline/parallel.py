"""The same work on many things, a few at a time, and stopped together."""

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain, islice
from typing import TypeVar

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
    """The things with their outcomes, in the order in which they end, or of the things if they end together.

    `work` gets the thing and an attempt whose check also raises once the caller has left the loop, so
    that the rest stops at its next piece. Leaving the loop waits for them: no thread outlives its step.
    Few more things are handed out than there are threads, however many there are. A single thing costs no
    thread: its work is done by the caller's.
    """
    left = threading.Event()

    def check() -> None:
        if left.is_set():
            raise AttemptOver("the step has ended")
        attempt.check()

    waiting = iter(things)
    first = list(islice(waiting, 2))
    if len(first) < 2:
        for thing in first:
            yield thing, _done_here(work, thing, attempt)
        return
    waiting = chain(first, waiting)
    inside = CheckedAttempt(check, attempt.report, attempt.yields)

    with ThreadPoolExecutor(threads) as pool:
        running: dict[Future[R], T] = {}
        try:
            while True:
                for thing in islice(waiting, 2 * threads - len(running)):
                    running[pool.submit(work, thing, inside)] = thing
                if not running:
                    return
                attempt.check()
                ended, _ = wait(running, timeout=POLL_INTERVAL, return_when=FIRST_COMPLETED)
                for future in [future for future in running if future in ended]:
                    yield running.pop(future), future
        finally:
            left.set()
            for future in running:
                future.cancel()


def _done_here(work: Callable[[T, Attempt], R], thing: T, attempt: Attempt) -> Future[R]:
    done: Future[R] = Future()
    try:
        done.set_result(work(thing, attempt))
    except Exception as error:  # noqa: BLE001 - the caller raises the exception, as for a thread's
        done.set_exception(error)
    return done
