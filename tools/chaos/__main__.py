"""`python -m tools.chaos --seed N --jobs N --faults N`: one run, its report and its exit code."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from entrypoints.cli import exit_codes
from entrypoints.stack.supervisor import stop_signals
from pipeline.errors import UsageRefused
from tools.chaos import report as report
from tools.chaos import small_disks
from tools.chaos.checker import judge
from tools.chaos.cluster import Cluster
from tools.chaos.drill import drill
from tools.chaos.final_state import read
from tools.chaos.host_checker import check_other_hosts, outages, undisturbed
from tools.chaos.hosts import machine
from tools.chaos.result import Result, result_of
from tools.chaos.run import RunLog, RunOptions, run
from tools.chaos.schedule import Kind
from tools.chaos.soak import soak, table
from tools.command_line import end_with, say

SECONDS_PER_FAULT = 4.2
"""Determines the default of --minutes; faults overlap, because most last longer."""


KEPT = "ARKLINE_ZK_CLIENT"
"""The caller's only setting that is kept: it names no server."""


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev chaos",
        description="Inject faults into a whole repository; exit code 1 if an object was lost or doubled.",
        epilog="Example: ./dev chaos --seed 7 --jobs 300 --faults 100 --json",
    )
    parser.add_argument("--seed", type=int, default=1, help="the schedule and the deposits (default: 1)")
    parser.add_argument("--jobs", type=int, default=100, help="objects deposited (default: 100)")
    parser.add_argument("--faults", type=int, default=40, help="faults injected (default: 40)")
    parser.add_argument(
        "--minutes", type=float, help="how long faults are injected (default: 4.2 s per fault)"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.add_argument("--keep", type=Path, help="an empty folder for the run, which is kept with all logs")
    parser.add_argument("--soak", type=int, metavar="N", help="instead: N small jobs without a fault")
    parser.add_argument("--only", nargs="+", metavar="KIND", help="inject only these kinds of faults")
    parser.add_argument(
        "--hosts",
        type=int,
        choices=(3,),
        default=0,
        help="three hosts in namespaces of this machine, and faults of hosts (root, Linux)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not print every fault")
    return parser.parse_args(arguments)


def _kinds(labels: list[str] | None) -> frozenset[Kind]:
    known = {kind.label: kind for kind in Kind}
    if unknown := set(labels or ()) - known.keys():
        raise UsageRefused(f"there is no fault {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return frozenset(known[label] for label in labels or known)


def main(arguments: list[str]) -> int:
    parsed = _parse(arguments)
    kinds = _kinds(parsed.only)
    if parsed.hosts:
        if reason := machine.why_not():
            return _not_run(reason, as_json=parsed.json)
        machine.enter("tools.chaos")
    elif not parsed.soak:  # a soak stores more than a small disk holds, and needs no disk faults
        small_disks.enter()
    for name in [name for name in os.environ if name.startswith("ARKLINE_") and name != KEPT]:
        del os.environ[name]  # faults must not hit the caller's running stack
    folder = Path(parsed.keep or tempfile.mkdtemp(prefix="arkline-chaos-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _soak(parsed, folder) if parsed.soak else _chaos(parsed, kinds, folder)
    finally:
        if parsed.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _not_run(reason: str, *, as_json: bool) -> int:
    say(f"not run: {reason}")
    if as_json:
        sys.stdout.write(json.dumps({"not_run": reason}) + "\n")
    return exit_codes.UNREACHABLE


def _silent(_line: str) -> None:
    """Print nothing, for `--quiet`."""


def _soak(parsed: argparse.Namespace, folder: Path) -> int:
    with stop_signals() as signals:
        result = soak(parsed.seed, parsed.soak, folder, signals, _silent if parsed.quiet else say)
    sys.stderr.write(table(result))
    if parsed.json:
        sys.stdout.write(json.dumps(result.as_json()) + "\n")
    return 0 if result.clean else 1


def _chaos(parsed: argparse.Namespace, kinds: frozenset[Kind], folder: Path) -> int:
    seconds = parsed.minutes * 60 if parsed.minutes else max(20.0, parsed.faults * SECONDS_PER_FAULT)
    options = RunOptions(parsed.seed, parsed.jobs, parsed.faults, seconds, kinds, parsed.hosts)
    results: list[Result] = []

    tell = _silent if parsed.quiet else say

    def examine(cluster: Cluster, run_log: RunLog) -> None:
        final = read(cluster)
        judged = judge(run_log.collection.deposits, run_log.bids, final, run_log.acts)
        began = time.monotonic()
        drilled = tuple(drill(cluster.settings, final, run_log.acts, tell))
        tell(f"the drills took {time.monotonic() - began:.0f} s")
        faults = outages(run_log.injected)
        stood_still = tuple(check_other_hosts(faults, final.deposited))
        tell(f"{len(undisturbed(faults))} outages of one host without another long fault")
        judgement = replace(judged, problems=judged.problems + drilled + stood_still)
        results.append(result_of(run_log, final, judgement))
        if results[-1].problems:
            sys.stderr.write(report.shortest(cluster, run_log, results[-1].problems, final) + "\n")

    tell(f"seed {options.seed}: {options.jobs} jobs, {options.faults} faults in {seconds:.0f} s, in {folder}")
    with stop_signals() as signals:
        run_log = run(options, folder, signals, tell, examine)
    (result,) = results
    sys.stderr.write(report.table(run_log, result))
    if parsed.json:
        sys.stdout.write(json.dumps(result.as_json(run_log)) + "\n")
    return 0 if result.clean else 1


if __name__ == "__main__":
    end_with(main)
