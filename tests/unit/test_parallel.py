import threading
from pathlib import Path

import pytest

from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.parallel import in_parallel


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
