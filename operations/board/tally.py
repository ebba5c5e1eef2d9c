"""What moved since this process started: counters and durations for metrics."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.states import FailureKind, JobState

BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Upper bounds of the duration of a state, in seconds."""


@dataclass
class Durations:
    """A histogram: how many were at most as long as each bound, and then all others."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(frozen=True)
class Tallied:
    """A copy at one moment."""

    moves: Mapping[tuple[JobState, JobState], int]
    """(source, target) -> moves."""
    failures: Mapping[tuple[FailureKind, str], int]
    """(kind, state in which it failed) -> failures."""
    durations: Mapping[tuple[JobState, JobState], tuple[Sequence[int], float]]
    """(state, following state) -> counts by bound, and the sum of seconds."""
    events: int
    lag: float
    """Seconds from the first change of the last flush to that flush."""


class Tally:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moves: Counter[tuple[JobState, JobState]] = Counter()
        self._failures: Counter[tuple[FailureKind, str]] = Counter()
        self._durations: dict[tuple[JobState, JobState], Durations] = {}
        self._events = 0
        self._lag = 0.0

    def count_events(self, number: int, lag: float) -> None:
        with self._lock:
            self._events += number
            self._lag = lag

    def count_move(self, source: JobState, target: JobState, seconds: float | None) -> None:
        """`seconds`: how long the job was in `source`; None if this is not known."""
        with self._lock:
            self._moves[source, target] += 1
            if seconds is not None:
                self._durations.setdefault((source, target), Durations()).add(seconds)

    def count_failure(self, kind: FailureKind, state: str) -> None:
        with self._lock:
            self._failures[kind, state] += 1

    def read(self) -> Tallied:
        with self._lock:
            durations = {key: (tuple(of.counts), of.total) for key, of in self._durations.items()}
            return Tallied(dict(self._moves), dict(self._failures), durations, self._events, self._lag)
