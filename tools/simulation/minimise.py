"""The shortest script that breaks the same rule: faults, acts and deposits are left out while it still does.

Delta debugging: halves first, then smaller parts, down to single ones. What the processes do between the
faults changes with each part that is left out, so a part is tried with a few orders of it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tools.simulation.history import Outcome, replay
from tools.simulation.script import Item, Script

ORDERS = 3
"""How many orders of the processes' steps a shorter script is tried in."""


def rule_of(outcome: Outcome) -> str:
    """The rule that a history broke first, as the beginning of its problem says it; empty if none."""
    return outcome.problems[0].partition(":")[0] if outcome.problems else ""


def minimise(script: Script, tell: Callable[[str], None] = lambda _: None) -> Script | None:
    """A script of which nothing can be left out; None if the history breaks no rule."""
    outcome = replay(script, first=True)
    if not outcome.problems:
        return None
    best, parts = script.again(items=frozenset(script.happened), rule=rule_of(outcome)), 2
    while items := sorted(best.items or ()):
        shorter = next(filter(_fails, _shorter(best, items, min(parts, len(items)))), None)
        if shorter is not None:
            best, parts = shorter.again(), max(parts - 1, 2)
            tell(f"{len(best.items or ())} of {len(script.happened)} remain")
        elif parts >= len(items):
            break
        else:
            parts *= 2
    return best


def _shorter(best: Script, items: Sequence[Item], parts: int) -> Iterator[Script]:
    """Scripts that lack one of `parts` equal parts of the items, each in a few orders."""
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    for first, last in pairwise(bounds):
        left = frozenset((*items[:first], *items[last:]))
        yield from (best.again(items=left, schedule=best.schedule + order) for order in range(ORDERS))


def _fails(script: Script) -> bool:
    return rule_of(replay(script, first=True)) == script.rule
