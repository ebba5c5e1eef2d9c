"""The watchdog ends a worker that leaves waiting messages alone, and no other."""

import threading
from collections.abc import Iterator

import pytest

from tasks.watchdog import LOOKS, Signs, Watchdog


def ended(signs: list[Signs]) -> bool:
    """Whether a watchdog that sees these one after another ends its worker."""
    over, seen = threading.Event(), threading.Event()
    moments: Iterator[Signs] = iter(signs)

    def look() -> Signs:
        try:
            return next(moments)
        except StopIteration:
            seen.set()
            return Signs(waiting=0, taken=0, idle=True)

    dog = Watchdog(look, over.set, patience=0.04)
    dog.start()
    while not over.wait(0.01) and not seen.is_set():
        pass
    dog.stop()
    return over.is_set()


def test_a_worker_that_leaves_messages_alone_is_ended() -> None:
    assert ended([Signs(waiting=1, taken=7, idle=True)] * (LOOKS + 1))


@pytest.mark.parametrize(
    "moment",
    [
        Signs(waiting=0, taken=7, idle=True),
        Signs(waiting=1, taken=8, idle=True),
        Signs(waiting=1, taken=7, idle=False),
    ],
    ids=["nothing is waiting", "it took one", "it has no process free"],
)
def test_a_worker_that_has_a_reason_is_left_alone(moment: Signs) -> None:
    deaf = Signs(waiting=1, taken=7, idle=True)

    assert not ended([*[deaf] * LOOKS, moment, *[deaf] * LOOKS])
