"""Which rows of the tables of states, and which pairs of a fault and a kind of place, histories have met.

Later histories of a run are steered towards what earlier ones have not met; which ones follows from the first
seed alone, so that a run can be repeated, and each history carries its goals in its name.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.states import BATCH, JOB
from tools.simulation.facts import name_of
from tools.simulation.history import FAULTS_OF_A_HISTORY, Outcome
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

PAIRS = (
    *(f"{fault} at {place}" for place in PLACES for fault in FAULTS_OF_A_HISTORY),
    *(f"{fault} at {place}" for place in SERVICE_PLACES for fault in SERVICE_FAULTS),
)

ROWS = tuple(name_of(machine, row) for machine in (JOB, BATCH) for row in machine.table)

FREE = 16
"""The first histories of a run, which are steered nowhere."""

ROWS_AT_ONCE, PAIRS_AT_ONCE = 3, 20
"""Goals of a history."""


@dataclass
class Coverage:
    """What the histories of a run have met, of all that they can meet."""

    met: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome) -> None:
        self.met |= {*outcome.rows, *outcome.pairs}

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.met and name not in UNREACHABLE]

    def goals(self, seed: int) -> tuple[str, ...]:
        """What the history of a seed is steered towards."""
        chance = random.Random(f"goals {seed}")
        rows, pairs = self.missing(ROWS), self.missing(PAIRS)
        return (
            *chance.sample(rows, min(ROWS_AT_ONCE, len(rows))),
            *chance.sample(pairs, min(PAIRS_AT_ONCE, len(pairs))),
        )

    def text(self) -> str:
        """What was met, and the rows that were not. An entry that no list has: the list is outdated."""
        lines = []
        for names, what in (ROWS, "rows of the tables of states"), (PAIRS, "pairs of a fault and a place"):
            reachable, missing = [name for name in names if name not in UNREACHABLE], self.missing(names)
            lines.append(f"{len(reachable) - len(missing)} of {len(reachable)} {what} that can be met")
        lines += (f"not met: {row}" for row in self.missing(ROWS))
        if unknown := sorted(self.met - {*ROWS, *PAIRS}):
            lines.append(f"not listed in coverage.py: {', '.join(unknown)}")
        return "\n".join(lines)
