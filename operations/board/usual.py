"""How long jobs usually stay in a state: of the stays that ended lately, 95 % were shorter.

A fixed timeout suits no state: downloads of one site take seconds and of another hours. Only states in which
somebody works on a job are judged: how long a job is pending says something about the queue.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from operations.board.values import BoardJob, JobPage
from pipeline.records import age
from pipeline.states import JOB, JobState

JUDGED = frozenset(JOB.working()) - {JobState.PENDING}

REMEMBERED = 500
"""Stays of each state that are remembered."""

PERIOD = 86_400.0
"""Seconds after which a stay does not count any more."""

ENOUGH = 20
"""Stays from which on it is known what is usual."""

SHARE = 0.95

SHORTEST = 10.0
"""Seconds below which nothing is slow: a person would not look."""


class RecentStays:
    """The stays that ended lately, in every judged state. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stays: dict[JobState, deque[tuple[float, float]]] = {
            state: deque(maxlen=REMEMBERED) for state in JUDGED
        }

    def add(self, state: JobState, seconds: float) -> None:
        if state in JUDGED:
            with self._lock:
                self._stays[state].append((self._clock(), seconds))

    def usual(self) -> dict[JobState, float]:
        """Seconds after which a job is slow; without the states of which too little is known."""
        since = self._clock() - PERIOD
        with self._lock:
            known = {
                state: sorted(seconds for at, seconds in stays if at > since)
                for state, stays in self._stays.items()
            }
        return {state: _limit(stays) for state, stays in known.items() if len(stays) >= ENOUGH}


def _limit(stays: list[float]) -> float:
    return max(SHORTEST, stays[int(len(stays) * SHARE)])


def condition(usual: Mapping[JobState, float], moment: float) -> tuple[str, list[object]]:
    """Which rows of `job` are slow, as SQL with its values."""
    terms = ["(state = ? AND since < ?)" for _ in usual]
    values: list[object] = [value for state, limit in usual.items() for value in (str(state), moment - limit)]
    return f"({' OR '.join(terms) or 'false'})", values


def marked(page: JobPage, usual: Mapping[JobState, float]) -> JobPage:
    """The page with what is usual beside every job that is slow."""
    return page.model_copy(update={"rows": tuple(_marked(page.rows, usual))})


def _marked(rows: Iterable[BoardJob], usual: Mapping[JobState, float]) -> Iterable[BoardJob]:
    for row in rows:
        limit = usual.get(row.state)
        slow = limit is not None and age(row.since) > limit
        yield row.model_copy(update={"usual": limit}) if slow else row
