"""Counts what has moved since this process started, for metrics, and how long jobs usually stay in a state.

A stay is usual if it is shorter than 95 % of recent stays. No fixed timeout suits a state: downloads from one
site take seconds and from another hours. Only states in which a worker works on a job are judged: how long a
job is pending reflects the queue.
"""

import copy
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.checks import CheckVerdict
from pipeline.outcome import Deposited
from pipeline.states import JOB, BatchState, FailureKind, JobState

BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Upper bounds of the histogram buckets for time in a state, in seconds."""

JUDGED = frozenset(JOB.working()) - {JobState.PENDING}

REMEMBERED = 500
"""Number of recent stays kept for each state."""

PERIOD = 86_400.0
"""Seconds after which a stay no longer counts."""

ENOUGH = 20
"""Minimum number of stays needed to know what is usual."""

SHARE = 0.95

SHORTEST = 10.0
"""Seconds below which nothing is slow: too short for anyone to notice."""


@dataclass
class Durations:
    """A histogram: the number of durations up to each bound, and of those beyond the last."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass
class Tallied:
    moves: Counter[tuple[JobState, JobState]] = field(default_factory=Counter)
    """(source, target) -> moves."""
    failures: Counter[tuple[FailureKind, str]] = field(default_factory=Counter)
    """(kind, state in which the job failed) -> failures."""
    durations: defaultdict[tuple[JobState, JobState], Durations] = field(
        default_factory=lambda: defaultdict(Durations)
    )
    """(state, next state) -> time in the state."""
    completions: Durations = field(default_factory=Durations)
    """Completed jobs by the time since their submission."""
    retries: Counter[JobState] = field(default_factory=Counter)
    """Jobs that started to wait for a retry after a transient fault."""
    reports: Counter[BatchState] = field(default_factory=Counter)
    """Ended batches whose report was sent, by their state."""
    deposited: defaultdict[str, Deposited] = field(default_factory=lambda: defaultdict(Deposited))
    """Collection -> what its reported batches have added to storage."""
    checked: Counter[tuple[str, CheckVerdict]] = field(default_factory=Counter)
    """(check, verdict) -> files of reported batches."""
    events: int = 0
    lag: float = 0.0
    """Seconds from the first change of the last flush to that flush."""


class RecentStays:
    """Recent stays in each judged state."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stays: dict[JobState, deque[tuple[float, float]]] = {
            state: deque(maxlen=REMEMBERED) for state in JUDGED
        }

    def add(self, state: JobState, seconds: float) -> None:
        if state in JUDGED:
            self._stays[state].append((self._clock(), seconds))

    def usual(self) -> dict[JobState, float]:
        """Seconds after which a job is slow; states with too few stays are omitted."""
        since = self._clock() - PERIOD
        usual = {}
        for state, stays in self._stays.items():
            known = sorted(seconds for at, seconds in stays if at > since)
            if len(known) >= ENOUGH:
                usual[state] = max(SHORTEST, known[int(len(known) * SHARE)])
        return usual


class Tally:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallied = Tallied()
        self._stays = RecentStays()

    @contextmanager
    def counting(self) -> Iterator[Tallied]:
        """The counters, to be updated within the block."""
        with self._lock:
            yield self._tallied

    def count_move(self, source: JobState, target: JobState, seconds: float | None) -> None:
        """Count a move; `seconds` is the time the job was in `source`, None if unknown."""
        with self.counting() as tallied:
            tallied.moves[source, target] += 1
            if seconds is not None:
                tallied.durations[source, target].add(seconds)
                self._stays.add(source, seconds)

    def usual(self) -> dict[JobState, float]:
        with self._lock:
            return self._stays.usual()

    def read(self) -> Tallied:
        """A copy of the counters."""
        with self._lock:
            return copy.deepcopy(self._tallied)
