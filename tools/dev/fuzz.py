"""`./dev fuzz`: the property tests, round after round, each with many more examples and another seed."""

import subprocess
import sys
import time

from rich.console import Console

from tools.checkout import PROJECT

FOLDERS = ("tests/fuzz", "tests/unit", "tests/plugins/merritt/test_answers.py")


def fuzz(minutes: float, seed: int, console: Console) -> int:
    """Start rounds until the time is up; 1 as soon as a property fails."""
    deadline = time.monotonic() + minutes * 60
    while True:
        console.rule(f"seed {seed}")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "--quiet", "-n", "2", "-m", "hypothesis", "--timeout", "0"),
                *("--hypothesis-profile", "long", "--hypothesis-seed", str(seed), *FOLDERS),
            ],
            cwd=PROJECT,
            check=False,
        )
        if done.returncode:
            console.print(f"a property does not hold: ./dev fuzz --minutes 0 --seed {seed}", markup=False)
            return 1
        if time.monotonic() > deadline:
            return 0
        seed += 1
