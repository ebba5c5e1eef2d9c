"""The command line of `./dev containers`."""

import argparse
import json
import sys

import tools.containers
from entrypoints.cli import exit_codes
from tools.command_line import end_with, say
from tools.containers.drill import run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev containers",
        description=tools.containers.__doc__,
        epilog="Example: ./dev containers --short --json",
    )
    parser.add_argument("--short", action="store_true", help="without backup, upgrade and the other profiles")
    parser.add_argument(
        "--profile", action="append", default=[], help="a profile of docker-compose.yml; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parsed = parser.parse_args(arguments)
    result = run(short=parsed.short, profiles=tuple(parsed.profile))
    for step, seconds in result.seconds.items():
        say(f"{step:<30} {seconds:>6.1f} s")
    if result.not_run:
        say(f"not run: {result.not_run}")
    if result.problem:
        say(f"FAILED {result.problem}")
    if parsed.json:
        sys.stdout.write(json.dumps(result.as_json()) + "\n")
    if result.not_run:
        return exit_codes.UNREACHABLE
    return 1 if result.problem else 0


if __name__ == "__main__":
    end_with(main)
