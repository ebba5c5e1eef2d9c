"""The same work on many things, a few at a time, and stopped together."""

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
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
    Few more things are handed out than there are threads, however many there are.
    """
    left = threading.Event()

    def check() -> None:
        if left.is_set():
            raise AttemptOver("the step has ended")
        attempt.check()

    inside = CheckedAttempt(check, attempt.report, attempt.yields)

    with ThreadPoolExecutor(threads) as pool:
        waiting = iter(things)
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
