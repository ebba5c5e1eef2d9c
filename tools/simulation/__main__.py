"""`./dev simulate`: histories of the real code in a simulated world, each given by its seed."""

import tools.simulation.clock  # noqa: F401, I001 - before the modules that keep time's functions

import argparse
import ctypes
import json
import os
import random
import shlex
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from math import inf
from pathlib import Path

from entrypoints.stack.die_with_parent import PR_SET_PDEATHSIG
from tools.simulation.coverage import FREE, Coverage
from tools.simulation.history import Outcome, remove_leftovers, replay
from tools.simulation.minimise import minimise
from tools.simulation.mutations import MUTATIONS
from tools.simulation.script import Script, read_script
from tools.simulation.story import readable

PROCESSES = 2

AHEAD = 3 * PROCESSES
"""Histories that are begun before the outcome of one is awaited."""

MOST = 3
"""Problems of a history that are printed; --json has all."""


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads the output may end first
    remove_leftovers()
    if given.minimise:
        return _minimise(given)
    first = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    began = time.time()
    outcomes: list[Outcome] = []
    met = Coverage()
    with ProcessPoolExecutor(PROCESSES, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
        for outcome in _histories(pool, met, first, given):
            outcomes.append(outcome)
            _print(outcome, given)
            if outcome.problems and (given.mutation or given.history):
                pool.shutdown(cancel_futures=True)
                break
    failed = [outcome for outcome in outcomes if outcome.problems]
    if not given.json:
        again = f": ./dev simulate {_name(failed[0])} --trace" if failed else ""
        seconds = time.time() - began
        print(f"{len(outcomes)} histories in {seconds:.0f} s, {len(failed)} with a problem{again}")
        print(met.text())
    expected = failed if given.mutation else not failed
    return 0 if outcomes and expected else 1


def _script(given: argparse.Namespace, seed: int) -> Script:
    """That of the file, or all that the seed draws; in the code as it is, unless a mutation is named."""
    script = read_script(given.history) if given.history else Script(seed)
    return script.again(mutation=given.mutation, towards=script.towards or tuple(given.towards))


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


def _histories(
    pool: ProcessPoolExecutor, met: Coverage, first: int, given: argparse.Namespace
) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds. A history is steered by those that are AHEAD of it and earlier.

    So what a history does depends on no process's speed.
    """
    deadline = time.time() + 60 * given.minutes
    waiting = deque[Future[Outcome | None]]()
    for seed in range(first, first + given.runs + AHEAD):
        if len(waiting) == AHEAD or seed >= first + given.runs:
            outcome = waiting.popleft().result() if waiting else None
            if outcome is None:
                break
            met.add(outcome)
            yield outcome
        if seed < first + given.runs:
            script = _script(given, seed)
            if seed >= first + FREE and not (script.towards or given.mutation or given.history):
                script = script.again(towards=met.goals(seed))
            last = inf if seed < first + given.fewest else deadline
            waiting.append(pool.submit(_within, last, script, given))


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before that
        os._exit(1)


def _within(deadline: float, script: Script, given: argparse.Namespace) -> Outcome | None:
    if time.time() > deadline:
        return None
    return replay(script, story=given.trace, first=bool(given.mutation))


def _print(outcome: Outcome, given: argparse.Namespace) -> None:
    if given.json:
        print(json.dumps({**asdict(outcome), "story": []}), flush=True)
    elif given.trace:
        print("\n".join(readable(outcome.story)))
    if not given.json and (outcome.problems or given.trace):
        print(f"{_name(outcome)}: {'; '.join(outcome.problems[:MOST]) or 'no problem'}", flush=True)


def _name(outcome: Outcome) -> str:
    """The options that give the same history again."""
    goals = (f"--towards {shlex.quote(goal)}" for goal in outcome.towards)
    return " ".join((f"--seed {outcome.seed}", *goals))


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
    parser.add_argument("--fewest", type=int, default=1, help="at least so many, however long they take (1)")
    parser.add_argument(
        "--towards",
        action="append",
        default=[],
        metavar="GOAL",
        help="steer the histories towards this row or pair, as --json names them; without it, those after "
        f"the first {FREE} of a run are steered towards what was not met yet",
    )
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
