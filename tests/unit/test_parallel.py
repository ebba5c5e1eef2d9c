import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, in_parallel
from pipeline.outcome import AttemptOver


@pytest.mark.parametrize("_", range(20))
def test_outcomes_that_are_there_at_once_come_in_the_order_of_the_things(_: int) -> None:
    both = threading.Event()

    def wait_for_both() -> None:
        both.wait(60)

    waiting = CheckedAttempt(wait_for_both, lambda *_: None)

    def work(thing: Path, attempt: Attempt) -> Path:
        if thing.name == "b":
            both.set()
        return thing

    outcomes = in_parallel(work, [Path("a"), Path("b")], 1, waiting)

    assert [future.result().name for _, future in outcomes] == ["a", "b"]


def test_a_thing_is_taken_only_while_few_outcomes_wait_for_the_caller() -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    with closing(in_parallel(lambda thing, _: thing, things(), 3, UNATTENDED)) as outcomes:
        next(outcomes)

    assert len(taken) <= 3 * 3 + 1


def test_every_thing_has_one_outcome() -> None:
    outcomes = in_parallel(lambda thing, _: thing * 2, range(1000), 8, UNATTENDED)

    assert sorted((thing, future.result()) for thing, future in outcomes) == [(n, 2 * n) for n in range(1000)]


def test_leaving_the_loop_interrupts_the_rest_and_waits_for_it() -> None:
    begun = threading.Barrier(3)
    interrupted: list[int] = []

    def work(thing: int, attempt: Attempt) -> None:
        if thing < 3:
            begun.wait(60)
        if thing == 0:
            return
        try:
            while True:
                attempt.check()
        except AttemptOver:
            interrupted.append(thing)
            raise

    with closing(in_parallel(work, range(100), 3, UNATTENDED)) as outcomes:
        assert next(outcomes)[0] == 0

    assert {1, 2} <= set(interrupted) <= {1, 2, 3}


def test_a_fault_of_the_things_is_the_callers() -> None:
    def things() -> Iterator[int]:
        yield from range(5)
        raise OSError("the list ends here")

    with pytest.raises(OSError, match="ends here"):
        list(in_parallel(lambda thing, _: thing, things(), 2, UNATTENDED))


def test_an_attempt_that_is_over_ends_the_loop_while_nothing_ends() -> None:
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise AttemptOver("over")

    def work(_: int, attempt: Attempt) -> None:
        over.set()
        while True:
            attempt.check()

    with pytest.raises(AttemptOver):
        list(in_parallel(work, range(4), 2, CheckedAttempt(check)))
