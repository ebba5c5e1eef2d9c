"""The watchdog ends a worker that leaves waiting messages alone, and no other."""

import threading
from collections.abc import Iterator

import pytest

from tasks.watchdog import LOOKS, Sample, Watchdog


def ended(signs: list[Sample]) -> bool:
    """Whether a watchdog that sees these one after another ends its worker."""
    over, seen = threading.Event(), threading.Event()
    moments: Iterator[Sample] = iter(signs)

    def look() -> Sample:
        try:
            return next(moments)
        except StopIteration:
            seen.set()
            return Sample(waiting=0, taken=0, idle=True)

    dog = Watchdog(look, over.set, patience=0.04)
    dog.start()
    while not over.wait(0.01) and not seen.is_set():
        pass
    dog.stop()
    return over.is_set()


def test_a_worker_that_leaves_messages_alone_is_ended() -> None:
    assert ended([Sample(waiting=1, taken=7, idle=True)] * (LOOKS + 1))


@pytest.mark.parametrize(
    "moment",
    [
        Sample(waiting=0, taken=7, idle=True),
        Sample(waiting=1, taken=8, idle=True),
        Sample(waiting=1, taken=7, idle=False),
    ],
    ids=["nothing is waiting", "it took one", "it has no process free"],
)
def test_a_worker_that_has_a_reason_is_left_alone(moment: Sample) -> None:
    deaf = Sample(waiting=1, taken=7, idle=True)

    assert not ended([*[deaf] * LOOKS, moment, *[deaf] * LOOKS])
