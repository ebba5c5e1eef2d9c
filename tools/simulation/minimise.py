"""The shortest script that breaks the same rule: faults, acts and deposits are left out while it still does.

Delta debugging: halves first, then smaller parts, down to single ones. What the processes do between the
faults changes with each part that is left out, so a part is tried with a few orders of it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, pairwise

from tools.simulation.history import Outcome, replay
from tools.simulation.script import Item, Script

ORDERS = 3
"""How many orders of the processes' steps a shorter script is tried in."""

PROCESSES = 2


def rule_of(outcome: Outcome) -> str:
    """The rule that a history broke first, as the beginning of its problem says it; empty if none."""
    return outcome.problems[0].partition(":")[0] if outcome.problems else ""


def minimise(script: Script, tell: Callable[[str], None] = lambda _: None) -> Script | None:
    """A script of which nothing can be left out; None if the history breaks no rule."""
    outcome = replay(script, first=True)
    if not outcome.problems:
        return None
    best = script.again(items=frozenset(script.happened), rule=rule_of(outcome))
    with ProcessPoolExecutor(PROCESSES) as pool:
        parts = 2
        while items := sorted(best.items or ()):
            shorter = _first_that_fails(pool, best, _without_each(items, min(parts, len(items))))
            if shorter is not None:
                best, parts = shorter, max(parts - 1, 2)
                tell(f"{len(best.items or ())} of {len(script.happened)} remain")
            elif parts >= len(items):
                break
            else:
                parts *= 2
    return best


def _without_each(items: Sequence[Item], parts: int) -> Iterator[frozenset[Item]]:
    """The items without each of so many equal parts of them."""
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    for first, last in pairwise(bounds):
        yield frozenset((*items[:first], *items[last:]))


def _first_that_fails(
    pool: ProcessPoolExecutor, best: Script, shorter: Iterator[frozenset[Item]]
) -> Script | None:
    candidates = (
        best.again(items=items, schedule=best.schedule + order)
        for items in shorter
        for order in range(ORDERS)
    )
    while batch := list(islice(candidates, PROCESSES)):
        for candidate, fails in zip(batch, pool.map(_fails, batch), strict=True):
            if fails:
                return candidate
    return None


def _fails(script: Script) -> bool:
    return rule_of(replay(script.again(), first=True)) == script.rule
