"""The command line of `./dev containers`."""

import argparse
import json
import sys

import tools.containers
from entrypoints.cli import exit_codes
from tools.command_line import end_with, say
from tools.containers import drill, losses
from tools.containers.steps import SHORT


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev containers",
        description=tools.containers.__doc__,
        epilog="Example: ./dev containers --short --json",
    )
    parser.add_argument("--short", action="store_true", help="one story, with fewer containers and one kill")
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        help="a profile of docker-compose.yml, instead of the whole long form; repeatable",
    )
    parser.add_argument("--only", choices=drill.PLANS, help="one story of the long form")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parsed = parser.parse_args(arguments)
    plans = {name: plan for name, plan in drill.PLANS.items() if parsed.only in (None, name)}
    if parsed.short or parsed.profile:
        steps = SHORT if parsed.short else losses.LONG
        plans = {"compose": drill.Plan(steps, tuple(parsed.profile))}
    result = drill.run(plans, short=parsed.short)
    for step, seconds in result.seconds.items():
        say(f"{step:<30} {seconds:>6.1f} s")
    if result.not_run:
        say(f"not run: {result.not_run}")
    for reason in result.not_covered:
        say(f"not covered: {reason}")
    for problem in result.problems:
        say(f"FAILED {problem}")
    if parsed.json:
        sys.stdout.write(json.dumps(result.as_json()) + "\n")
    if result.not_run:
        return exit_codes.UNREACHABLE
    return 1 if result.problems else 0


if __name__ == "__main__":
    end_with(main)
