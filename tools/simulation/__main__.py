"""`./dev simulate`: histories of the real code in a simulated world, each given by its seed."""

import tools.simulation.clock  # noqa: F401, I001 - before the modules that keep time's functions

import argparse
import json
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial

from tools.simulation.history import FAULTS, Outcome, replay

PROCESSES = 2


def main() -> int:
    given = _arguments()
    first = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    began = time.time()
    deadline = began + 60 * given.minutes
    failed: list[Outcome] = []
    done = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        seeds = range(first, first + given.runs)
        for outcome in pool.map(partial(_within, deadline, given.faults, given.trace), seeds, chunksize=1):
            if outcome is None:
                continue
            done += 1
            if outcome.problems:
                failed.append(outcome)
            if given.trace:
                print("\n".join(outcome.story))
            if given.json:
                print(json.dumps({**asdict(outcome), "story": []}))
            elif outcome.problems or given.trace:
                print(f"seed {outcome.seed}: {'; '.join(outcome.problems) or 'no problem'}")
    if not given.json:
        seconds = time.time() - began
        print(
            f"{done} histories in {seconds:.0f} s, {len(failed)} with a problem"
            + (f": ./dev simulate --seed {failed[0].seed} --trace" if failed else "")
        )
    return 1 if failed or not done else 0


def _within(deadline: float, faults: int, story: bool, seed: int) -> Outcome | None:
    return replay(seed, faults, story=story) if time.time() < deadline else None


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
    parser.add_argument("--trace", action="store_true", help="print every request, effect and fault")
    parser.add_argument("--json", action="store_true", help="one JSON object for each history")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
