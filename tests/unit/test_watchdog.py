"""The watchdog ends a worker that leaves waiting messages in its queues, and no other worker."""

import threading
from collections.abc import Iterator

import pytest

from tasks.worker import SAMPLES, Sample, watch

STALLED = Sample(waiting=1, taken=7, idle=True)


def ended(samples: list[Sample]) -> bool:
    """True if a watchdog that takes these samples, one after another, ends its worker."""
    over, used_up = threading.Event(), threading.Event()
    remaining: Iterator[Sample] = iter(samples)

    def take_sample() -> Sample:
        try:
            return next(remaining)
        except StopIteration:
            used_up.set()
            return Sample(waiting=0, taken=0, idle=True)

    watch(take_sample, over.set, limit=0.04, stopped=used_up)
    return over.is_set()


def test_a_worker_that_consumes_no_waiting_message_is_ended() -> None:
    assert ended([STALLED] * (SAMPLES + 1))


@pytest.mark.parametrize(
    "sample",
    [
        Sample(waiting=0, taken=7, idle=True),
        Sample(waiting=1, taken=8, idle=True),
        Sample(waiting=1, taken=7, idle=False),
    ],
    ids=["no message is waiting", "a message was consumed", "no process is free"],
)
def test_a_worker_with_a_reason_to_consume_nothing_is_kept(sample: Sample) -> None:
    assert not ended([*[STALLED] * SAMPLES, sample, *[STALLED] * SAMPLES])
