"""The limits of requests and attempts count for many threads at once."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from entrypoints.web.limits import FEW_KEYS, RateLimit, TooMany

THREADS, EACH, MOST = 8, 5_000, 10_000


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_requests_at_the_same_moment_are_counted_and_none_fails() -> None:
    limit = RateLimit(MOST)

    def send(number: int) -> int:
        accepted = 0
        for _ in range(EACH):
            try:
                limit.count("anna")
            except TooMany:
                continue
            accepted += 1
        return accepted

    with ThreadPoolExecutor(THREADS) as threads:
        assert sum(threads.map(send, range(THREADS))) == MOST


def test_a_clock_that_is_set_back_or_forward_changes_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, monotonic, wall = RateLimit(2), time.monotonic(), time.time()
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    limit.count("anna")
    limit.count("anna")
    for jump in (-3600, 3600):
        monkeypatch.setattr(time, "time", lambda jump=jump: wall + jump)
        with pytest.raises(TooMany) as refused:
            limit.count("anna")
        assert refused.value.retry_after == 60

    monotonic += 61
    limit.count("anna")


def test_counts_that_have_ended_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, monotonic = RateLimit(2), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: monotonic)
    for number in range(3 * FEW_KEYS):
        limit.count(f"caller {number}")
        monotonic += 0.1

    assert len(limit._counts) <= 2 * FEW_KEYS
