"""What happens in a history beside its code: faults, people's acts and deposits, each with an identity.

The seed draws them, each kind from a chance of its own, and the history notes them. A script that lists what
remains replays the same history without the rest: what is left out shifts no other draw of its kind.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

ACT, DEPOSIT = "act", "deposit"
LOST, REPEATED = "message lost", "message repeated"
BROKEN, CHANGED = "source broken", "source changed"


class Item(NamedTuple):
    """A fault, an act of the operator, or a deposit."""

    kind: str
    number: int
    """The number among those of its kind; of a fault of a process, that of the place that it passed."""
    process: str = ""


@dataclass
class Script:
    """What a history does. `items` None: all that the seed draws."""

    seed: int
    items: frozenset[Item] | None = None
    schedule: int = 0
    """Another order of what the processes do, with the same faults, acts and deposits."""
    towards: tuple[str, ...] = ()
    """Rows and pairs that it is steered towards: see `plan`."""
    mutation: str = ""
    rule: str = ""
    """The rule that the history breaks."""
    happened: list[Item] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def chance(self, *of: object) -> Random:
        """A chance that no draw of another kind shifts."""
        return Random(" ".join(map(str, (self.seed, *of))))

    def happens(self, item: Item) -> bool:
        """Whether a thing that the seed has drawn happens; noted if so."""
        if self.items is not None and item not in self.items:
            return False
        self.happened.append(item)
        return True

    def strikes(self, kind: str, fraction: float) -> bool:
        """Whether the next thing of a kind fails, in that fraction of all."""
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        drawn = bool(fraction) and self.chance(kind, number).random() < fraction
        return drawn and self.happens(Item(kind, number))

    def fault_at(self, process: str, place: int) -> str | None:
        """The kind of the fault that is listed for a place of a process."""
        return next((one.kind for one in self.items or () if one[1:] == (place, process)), None)

    def again(self, **changes: object) -> "Script":
        """The script of another run."""
        return replace(self, **{"happened": [], "_numbers": {}, **changes})  # type: ignore[arg-type]

    def save(self, path: Path) -> None:
        items = ",\n  ".join(json.dumps(list(item)) for item in sorted(self.items or ()))
        facts = {name: getattr(self, name) for name in ("seed", "schedule", "towards", "mutation", "rule")}
        path.write_text(f'{json.dumps(facts)[:-1]}, "items": [\n  {items}\n]}}\n')


def read_script(path: Path) -> Script:
    """The script of a file that `save` wrote."""
    given = json.loads(path.read_text())
    given["towards"] = tuple(given.get("towards", ()))
    return Script(**{**given, "items": frozenset(Item(*one) for one in given["items"])})
