"""What moved since this process started: counters and durations for metrics."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from operations.board.usual import RecentStays
from pipeline.outcome import Deposited
from pipeline.states import BatchState, FailureKind, JobState

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
    completions: tuple[Sequence[int], float]
    """Completed jobs by the time since their submission, and the sum of seconds."""
    retries: Mapping[JobState, int]
    """Jobs that began to wait for their next try after a transient fault."""
    reports: Mapping[BatchState, int]
    """Ended batches whose report was sent, by their state."""
    deposited: Mapping[str, Deposited]
    """Collection -> what reported batches have added to storage."""
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
        self._completions = Durations()
        self._retries: Counter[JobState] = Counter()
        self._reports: Counter[BatchState] = Counter()
        self._deposited: dict[str, Deposited] = {}
        self._stays = RecentStays()
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
                self._stays.add(source, seconds)

    def usual(self) -> dict[JobState, float]:
        """Seconds in a state after which a job is slow; without the states of which too little is known."""
        return self._stays.usual()

    def count_failure(self, kind: FailureKind, state: str) -> None:
        with self._lock:
            self._failures[kind, state] += 1

    def count_completion(self, seconds: float) -> None:
        with self._lock:
            self._completions.add(seconds)

    def count_retry(self, state: JobState) -> None:
        with self._lock:
            self._retries[state] += 1

    def count_report(self, state: BatchState) -> None:
        with self._lock:
            self._reports[state] += 1

    def count_deposited(self, collection: str, added: Deposited) -> None:
        with self._lock:
            self._deposited[collection] = self._deposited.get(collection, Deposited()) + added

    def read(self) -> Tallied:
        with self._lock:
            durations = {key: (tuple(of.counts), of.total) for key, of in self._durations.items()}
            return Tallied(
                moves=dict(self._moves),
                failures=dict(self._failures),
                durations=durations,
                completions=(tuple(self._completions.counts), self._completions.total),
                retries=dict(self._retries),
                reports=dict(self._reports),
                deposited=dict(self._deposited),
                events=self._events,
                lag=self._lag,
            )
