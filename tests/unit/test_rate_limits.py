"""The limits of requests and attempts count for many threads at once."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from entrypoints.web.limits import RateLimit, TooMany

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
