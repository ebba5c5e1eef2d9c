"""Observes a running batch: how many of its jobs have ended, ZooKeeper's response time, memory."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks._processes import megabytes, tree
from pipeline.settings import Settings
from pipeline.states import Bucket
from zkstate.connection.session import Session, connect
from zkstate.queue import listings
from zkstate.record import batches

PAUSE = 0.25
"""Seconds between two samples."""


@dataclass(frozen=True)
class Sample:
    at: float
    """Seconds on the monotonic clock."""
    created: int
    ended: int
    answer_ms: float
    """Duration of one read; other clients' transactions delay it."""


@dataclass
class Watch:
    """Samples of one batch, taken in a thread with its own session."""

    bid: str
    pids: Callable[[], dict[str, int]]
    samples: list[Sample] = field(default_factory=list)
    peaks: dict[str, float] = field(default_factory=dict)
    """Megabytes of the largest process with the name."""

    def sample(self, session: Session) -> None:
        start = time.perf_counter()
        recorded = listings.recorded(session)
        took = 1000 * (time.perf_counter() - start)
        counts = batches.counts(session, self.bid)
        ended = sum(number for bucket, number in counts.items() if bucket is not Bucket.PROCESSING)
        self.samples.append(Sample(time.monotonic(), recorded, ended, took))

    def weigh(self) -> None:
        for name, pid in self.pids().items():
            for process, own in tree(name, pid).items():
                self.peaks[process] = max(self.peaks.get(process, 0), *map(megabytes, own))

    def rate(self, first: int, last: int) -> float:
        """Jobs per second from the end of job `first` to the end of job `last`."""
        inside = [sample for sample in self.samples if first <= sample.ended <= last]
        if len(inside) < 2:
            return 0.0
        took = inside[-1].at - inside[0].at
        return (inside[-1].ended - inside[0].ended) / took if took else 0.0

    def between(self, start: float, end: float) -> list[Sample]:
        return [sample for sample in self.samples if start <= sample.at <= end]

    def seen(self, reached: Callable[[Sample], bool]) -> Sample:
        """The first sample for which `reached` is true."""
        return next(sample for sample in self.samples if reached(sample))


@contextmanager
def watching(settings: Settings, bid: str, pids: Callable[[], dict[str, int]]) -> Iterator[Watch]:
    """Watch the batch during the block; `pids`: the processes to measure, including their children."""
    watch, over = Watch(bid, pids), threading.Event()

    def run() -> None:
        with connect(settings, answer_timeout=120) as session:
            while not over.wait(PAUSE):
                watch.sample(session)
                watch.weigh()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
