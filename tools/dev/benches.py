"""`./dev bench`: run the programs in benchmarks/."""

import subprocess
import sys
from collections.abc import Sequence

from rich.console import Console

from pipeline.errors import UsageRefused
from tools.checkout import PROJECT

FOLDER = PROJECT / "benchmarks"


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")))


def bench(name: str, further: Sequence[str], as_json: bool, console: Console) -> int:
    """Run one benchmark with further arguments, or all; returns the worst of their exit codes."""
    if name and name not in names():
        raise UsageRefused(f"there is no benchmark '{name}'; there are: {', '.join(names()) or 'none yet'}")
    worst = 0
    for benchmark in [name] if name else names():
        if not as_json:
            console.rule(benchmark)
        arguments = (*further, "--json") if as_json else further
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments], cwd=PROJECT, check=False
        )
        worst = max(worst, done.returncode)
    return worst
