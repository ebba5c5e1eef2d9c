"""Which rows of the tables of states, and which pairs of a fault and a kind of place, histories have met.

Later histories of a run are steered towards what earlier ones have not met; which ones follows from the first
seed alone, so that a run can be repeated, and each history carries its goals in its name.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.states import BATCH, JOB
from tools.simulation.facts import name_of
from tools.simulation.outside import SERVICE_FAULTS, SERVICE_PLACES
from tools.simulation.patches import EFFECTS
from tools.simulation.site import BEATS

_TASKS = (*(task.name for task in (*JOB.tasks(), *BATCH.tasks())), "callback.failed")
_REQUESTS = (
    *("Create", "CreateRequest", "Delete", "Exists", "GetChildren", "GetData", "MultiRequest", "SetData"),
    *("Sync", "close"),
)

PLACES = tuple(
    dict.fromkeys(
        (
            *(f"record {request}" for request in _REQUESTS),
            *(f"broker send {task}" for task in (*_TASKS, "beat.feed")),
            *(f"worker takes {task}" for task in (*_TASKS, *(f"beat.{name}" for name in BEATS))),
            *(f"file {moment} {effect}" for effect in EFFECTS for moment in ("before", "after")),
            "source GET",
            *SERVICE_PLACES,
        )
    )
)
"""The kinds of places that a process of a site passes."""

UNREACHABLE = {
    "job completed clean-up completed": "no move: the record stays as it is; only a release before 0.3.0 has "
    "left something to clean up",
    "job failed resume downloading after processing, room kept, if named": "recording fails by itself "
    "only by a fault of the inventory, which is not simulated; what an operator fails gives up its room",
}
"""Rows and pairs that no history can meet, each with its reason."""

ROWS = tuple(name_of(machine, row) for machine in (JOB, BATCH) for row in machine.table)

FREE = 16
"""The first histories of a run, which are steered nowhere."""

ROWS_AT_ONCE, PAIRS_AT_ONCE = 3, 20
"""Goals of a history."""


class Met(Protocol):
    rows: list[str]
    pairs: list[str]


@dataclass
class Coverage:
    """What the histories of a run have met, of all that they can meet."""

    faults: Sequence[str]
    """The faults of processes."""
    met: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """What was met and is not listed here: a list is out of date."""

    @property
    def pairs(self) -> tuple[str, ...]:
        return (
            *(f"{fault} at {place}" for place in PLACES for fault in self.faults),
            *(f"{fault} at {place}" for place in SERVICE_PLACES for fault in SERVICE_FAULTS),
        )

    def add(self, outcome: Met) -> None:
        known = {*ROWS, *self.pairs}
        self.met |= known.intersection((*outcome.rows, *outcome.pairs))
        self.unknown |= {*outcome.rows, *outcome.pairs} - known

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.met and name not in UNREACHABLE]

    def goals(self, seed: int) -> tuple[str, ...]:
        """What the history of a seed is steered towards."""
        chance = random.Random(f"goals {seed}")
        rows, pairs = self.missing(ROWS), self.missing(self.pairs)
        return (
            *chance.sample(rows, min(ROWS_AT_ONCE, len(rows))),
            *chance.sample(pairs, min(PAIRS_AT_ONCE, len(pairs))),
        )

    def text(self) -> str:
        lines = [
            f"{len(names) - len(self.missing(names)) - self._unreachable(names)} of "
            f"{len(names) - self._unreachable(names)} {what} that can be met"
            for names, what in (
                (ROWS, "rows of the tables of states"),
                (self.pairs, "pairs of a fault and a place"),
            )
        ]
        if self.unknown:
            lines.append(f"not listed in coverage.py: {', '.join(sorted(self.unknown))}")
        return "\n".join(lines)

    @staticmethod
    def _unreachable(names: Sequence[str]) -> int:
        return len(UNREACHABLE.keys() & set(names))
