"""`python -m tools.chaos --seed N --jobs N --faults N`: a schedule of faults, and what was lost by it."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from entrypoints.cli import exit_codes
from entrypoints.stack.signals import stop_signals
from pipeline.errors import ArklineError, UsageRefused
from tools.chaos import report as story
from tools.chaos import small_disks as ground
from tools.chaos.checker import judge
from tools.chaos.cluster import Arena
from tools.chaos.final_state import read
from tools.chaos.result import Result, result_of
from tools.chaos.run import Course, Order, run
from tools.chaos.schedule import Kind

SECONDS_PER_FAULT = 3.4
"""Unless --minutes says otherwise; faults overlap, since most of them last longer."""


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev chaos",
        description="Strike a whole repository with faults on schedule; exit code 1 if anything was lost.",
    )
    parser.add_argument("--seed", type=int, default=1, help="the schedule and the deposits (default: 1)")
    parser.add_argument("--jobs", type=int, default=100, help="objects deposited (default: 100)")
    parser.add_argument("--faults", type=int, default=40, help="faults injected (default: 40)")
    parser.add_argument("--minutes", type=float, help="how long faults strike (default: 3.4 s for each)")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.add_argument("--keep", type=Path, help="an empty folder to run in, which is kept with all logs")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="strike with these kinds of faults alone")
    parser.add_argument("--quiet", action="store_true", help="do not tell of each fault as it strikes")
    return parser.parse_args(arguments)


def _kinds(labels: list[str] | None) -> frozenset[Kind]:
    known = {kind.label: kind for kind in Kind}
    if unknown := set(labels or ()) - known.keys():
        raise UsageRefused(f"there is no fault {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return frozenset(known[label] for label in labels or known)


def main(arguments: list[str]) -> int:
    asked = _asked(arguments)
    kinds = _kinds(asked.only)
    ground.enter()
    for name in [each for each in os.environ if each.startswith("ARKLINE_")]:
        del os.environ[name]  # a running stack of the caller's must not be what is struck
    seconds = asked.minutes * 60 if asked.minutes else max(20.0, asked.faults * SECONDS_PER_FAULT)
    order = Order(asked.seed, asked.jobs, asked.faults, seconds, kinds)
    folder = Path(asked.keep or tempfile.mkdtemp(prefix="arkline-chaos-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []

    def say(line: str) -> None:
        if not asked.quiet:
            sys.stderr.write(f"{line}\n")

    def examine(stage: Arena, course: Course) -> None:
        remains = read(stage)
        results.append(result_of(course, remains, judge(course.collection.deposits, course.bids, remains)))
        if results[-1].problems:
            sys.stderr.write(story.shortest(stage, course, results[-1].problems, remains) + "\n")

    say(f"seed {order.seed}: {order.jobs} jobs, {order.faults} faults in {seconds:.0f} s, in {folder}")
    try:
        with stop_signals() as signals:
            course = run(order, folder, signals, say, examine)
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    (result,) = results
    sys.stderr.write(story.table(course, result))
    if asked.json:
        sys.stdout.write(json.dumps(result.as_json(course)) + "\n")
    return 0 if result.clean else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ArklineError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(exit_codes.of_error(error))
