"""The tables of docs/reliability.md, from many results: `python -m tools.chaos.tally RESULT.json...`."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tools.chaos.problem import Category
from tools.chaos.schedule import Kind

_COLUMNS = (
    "seed",
    "jobs",
    "faults",
    "completed",
    "failed",
    "planted",
    "deleted",
    *(sort.value for sort in Category),
    "resumed",
    "tries_again",
    "attempts",
    "mails_repeated",
    "callbacks_repeated",
    "seconds",
)


def runs(results: list[dict[str, Any]]) -> str:
    """One line per run, and their sums."""
    lines = ["| " + " | ".join(name.replace("_", " ") for name in _COLUMNS) + " |"]
    lines.append("|" + "---|" * len(_COLUMNS))
    for result in results:
        lines.append("| " + " | ".join(str(result[name]) for name in _COLUMNS) + " |")
    sums = ["all", *(f"{sum(result[name] for result in results):g}" for name in _COLUMNS[1:])]
    lines.append("| " + " | ".join(sums) + " |")
    return "\n".join(lines)


def kinds(results: list[dict[str, Any]]) -> str:
    """For each kind of fault: how often and in how many runs it was injected, and how many had a problem."""
    lines = ["| fault | times | runs | runs with a problem |", "|---|---|---|---|"]
    injected: Counter[str] = Counter()
    for kind in Kind:
        those = [result for result in results if kind.label in result["kinds"]]
        injected[kind.label] = sum(result["kinds"][kind.label] for result in those)
        wrong = sum(any(result[sort.value] for sort in Category) for result in those)
        lines.append(f"| {kind.label} | {injected[kind.label]} | {len(those)} | {wrong} |")
    return "\n".join([*lines, f"| **all** | **{injected.total()}** | {len(results)} | |"])


if __name__ == "__main__":
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    sys.stdout.write(f"{runs(results)}\n\n{kinds(results)}\n")
