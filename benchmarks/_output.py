"""Runs a benchmark, or prints what it measures; prints its figures: a table, or one line with --json."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median


def run(main: Callable[[], int | None], about: str | None) -> None:
    """Run the benchmark and exit; with --help, print its docstring instead."""
    if "--help" in sys.argv:
        print(about)
        return
    sys.exit(main())


def report(
    benchmark: str, ratios: Sequence[float], goal: float, met: bool, figures: Mapping[str, object]
) -> None:
    """Print the median ratio of the rounds against its goal, with their range and other figures."""
    tell(
        {
            "benchmark": benchmark,
            "ratio": round(median(ratios), 3),
            "goal": goal,
            "met": met,
            "rounds": len(ratios),
            "figures": {"ratio_range": [round(min(ratios), 3), round(max(ratios), 3)], **figures},
        }
    )


def tell(result: Mapping[str, object]) -> None:
    if "--json" in sys.argv:
        print(json.dumps(result))
        return
    figures = result.get("figures")
    for name, value in {**result, **(figures if isinstance(figures, dict) else {})}.items():
        if name != "figures":
            print(f"{name:32} {value}")
