"""`./dev simulate`: histories of the real code in a simulated world, each given by its seed."""

import tools.simulation.clock  # noqa: F401, I001 - before the modules that keep time's functions

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tools.simulation.history import FAULTS, FAULTS_OF_A_HISTORY, Outcome, replay
from tools.simulation.invariants import ALL_ROWS
from tools.simulation.minimise import minimise
from tools.simulation.mutations import MUTATIONS
from tools.simulation.script import Script, read_script
from tools.simulation.story import readable

PROCESSES = 2

MOST = 3
"""Problems of a history that are printed; --json has all."""


def main() -> int:
    given = _arguments()
    if given.minimise:
        return _minimise(given)
    first = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    began = time.time()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(PROCESSES) as pool:
        work = partial(_within, began + 60 * given.minutes, given)
        for outcome in pool.map(work, range(first, first + given.runs), chunksize=1):
            if outcome is None:
                break
            outcomes.append(outcome)
            _print(outcome, given)
            if outcome.problems and (given.mutation or given.history):
                pool.shutdown(cancel_futures=True)
                break
    failed = [outcome for outcome in outcomes if outcome.problems]
    if not given.json:
        print(_summary(outcomes, failed, time.time() - began))
    expected = failed if given.mutation else not failed
    return 0 if outcomes and expected else 1


def _script(given: argparse.Namespace, seed: int) -> Script:
    """That of the file, or all that the seed draws; in the code as it is, unless a mutation is named."""
    script = read_script(given.history) if given.history else Script(seed)
    return script.again(mutation=given.mutation)


def _minimise(given: argparse.Namespace) -> int:
    """Write the shortest script that breaks the rule, and its story."""
    script = _script(given, given.seed or 0)
    shortest = minimise(script, lambda progress: print(progress, file=sys.stderr, flush=True))
    if shortest is None:
        print("The history breaks no rule.", file=sys.stderr)
        return 1
    shortest.save(given.minimise)
    print("\n".join(readable(replay(shortest.again(), story=True, first=True).story)))
    mutation = f" --mutation {shortest.mutation}" if shortest.mutation else ""
    print(f"{len(shortest.items or ())} remain: ./dev simulate --history {given.minimise}{mutation} --trace")
    return 0


def _within(deadline: float, given: argparse.Namespace, seed: int) -> Outcome | None:
    if time.time() > deadline:
        return None
    return replay(_script(given, seed), given.faults, story=given.trace, first=bool(given.mutation))


def _print(outcome: Outcome, given: argparse.Namespace) -> None:
    if given.json:
        print(json.dumps({**asdict(outcome), "story": []}), flush=True)
        return
    if given.trace:
        print("\n".join(readable(outcome.story)))
    if outcome.problems or given.trace:
        print(f"seed {outcome.seed}: {'; '.join(outcome.problems[:MOST]) or 'no problem'}", flush=True)


def _summary(outcomes: Sequence[Outcome], failed: Sequence[Outcome], seconds: float) -> str:
    rows = {row for outcome in outcomes for row in outcome.rows}
    places = {place for outcome in outcomes for place in outcome.places}
    pairs = {pair for outcome in outcomes for pair in outcome.pairs}
    again = f": ./dev simulate --seed {failed[0].seed} --trace" if failed else ""
    return (
        f"{len(outcomes)} histories in {seconds:.0f} s, {len(failed)} with a problem{again}\n"
        f"{len(rows & ALL_ROWS)} of {len(ALL_ROWS)} rows of the table of states, "
        f"{len(pairs)} of {len(places) * len(FAULTS_OF_A_HISTORY)} pairs of a fault and a kind of place"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev simulate",
        description="Run the real record, tasks and steps on a simulated ZooKeeper, Redis and sources, in "
        "virtual time. A seed and a commit always give the same history.",
        epilog="Example: ./dev simulate --seed 34 --trace",
    )
    parser.add_argument("--seed", type=int, help="the first seed; without it, one by chance")
    parser.add_argument("--runs", type=int, default=1, help="how many histories, with following seeds (1)")
    parser.add_argument("--minutes", type=float, default=60.0, help="no history starts after these (60)")
    parser.add_argument("--faults", type=int, default=FAULTS, help=f"most faults of a history ({FAULTS})")
    parser.add_argument(
        "--mutation",
        default="",
        choices=("", *MUTATIONS),
        metavar="NAME",
        help="put a fault into the code, and stop at the first history that finds it; exit 1 if none does: "
        + ", ".join(MUTATIONS),
    )
    parser.add_argument(
        "--minimise",
        type=Path,
        metavar="FILE",
        help="leave out faults, acts and deposits while the history breaks the same rule, and write the rest",
    )
    parser.add_argument("--history", type=Path, metavar="FILE", help="replay what --minimise has written")
    parser.add_argument("--trace", action="store_true", help="print every request, effect and fault")
    parser.add_argument("--json", action="store_true", help="one JSON object for each history")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
