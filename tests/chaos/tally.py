"""The tables of docs/reliability.md, from many results: `python -m tests.chaos.tally RESULT.json...`."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.problem import Sort
from tests.chaos.schedule import Kind

_COLUMNS = (
    "seed",
    "jobs",
    "faults",
    "completed",
    "failed",
    "planted",
    *(sort.value for sort in Sort),
    "resumed",
    "tries_again",
    "attempts",
    "mails_repeated",
    "callbacks_repeated",
    "seconds",
)


def runs(results: list[dict[str, Any]]) -> str:
    """One line a run, and their sums."""
    lines = ["| " + " | ".join(name.replace("_", " ") for name in _COLUMNS) + " |"]
    lines.append("|" + "---|" * len(_COLUMNS))
    for each in results:
        lines.append("| " + " | ".join(str(each[name]) for name in _COLUMNS) + " |")
    sums = ["all", *(f"{sum(each[name] for each in results):g}" for name in _COLUMNS[1:])]
    lines.append("| " + " | ".join(sums) + " |")
    return "\n".join(lines)


def kinds(results: list[dict[str, Any]]) -> str:
    """How often each kind of fault struck."""
    struck: Counter[str] = Counter()
    for each in results:
        struck.update(each["kinds"])
    lines = ["| fault | times |", "|---|---|"]
    lines += [f"| {kind.label} | {struck[kind.label]} |" for kind in Kind]
    return "\n".join([*lines, f"| **all** | **{struck.total()}** |"])


if __name__ == "__main__":
    found = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    sys.stdout.write(f"{runs(found)}\n\n{kinds(found)}\n")
