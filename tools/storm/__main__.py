"""`python -m tools.storm --hostile N --honest N`: one storm, its figures and its exit code."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tools.command_line import end_with, say
from tools.storm.changes import changed
from tools.storm.run import Result, storm


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev storm",
        description="Hostile deposits and requests among honest ones on the default stack; exit code 1 if an "
        "honest one does not complete, or a hostile one leaves anything behind.",
        epilog="Example: ./dev storm --hostile 200 --honest 100 --seed 7 --json",
    )
    parser.add_argument("--hostile", type=int, default=60, help="hostile deposits (default: 60)")
    parser.add_argument("--honest", type=int, default=30, help="honest deposits (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="chooses and mixes the deposits (default: 1)")
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="with the shipped times and tries; an operator ends what the honest deposits did not wait for",
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.add_argument(
        "--keep", type=Path, help="a folder that does not exist yet, for the stack and all logs"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    parsed = _parse(arguments)
    folder = Path(parsed.keep or tempfile.mkdtemp(prefix="arkline-storm-")).absolute()
    for name, (value, shipped) in changed(parsed.shipped).items():
        say(f"{name}={value} ({shipped})")
    try:
        result = storm(parsed.hostile, parsed.honest, parsed.seed, folder, say, shipped=parsed.shipped)
    finally:
        if parsed.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.write(_table(result))
    if parsed.json:
        sys.stdout.write(json.dumps(result.as_json()) + "\n")
    return 1 if result.problems else 0


def _table(result: Result) -> str:
    lines = [f"{form}: {message}" for form, message in sorted(result.messages.items())]
    lines += [f"{act}: {answers}" for act, answers in result.acts.items()]
    lines += ["", "| process | memory at most, MB |", "|---|---|"]
    lines += [f"| {name} | {megabytes:.0f} |" for name, megabytes in result.megabytes.items()]
    lines += [
        "",
        f"{result.honest} honest deposits ended after {result.honest_seconds:.0f} s, "
        f"{result.hostile} hostile ones after {result.seconds:.0f} s, "
        f"{result.failed_by_operator} of them by an operator; "
        f"the web process was restarted {result.web_restarts} times; {len(result.problems)} problems",
        *result.problems,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    end_with(main)
