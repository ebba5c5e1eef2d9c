"""The simulated ZooKeeper answers as the real one: results, errors, versions, watches and their order."""

import subprocess
import sys

import pytest

from pipeline.settings import Settings
from tools.checkout import PROJECT
from tools.simulation import comparison

SEEDS = (1, 3, 16, 43, 85, 474, 631, *range(10_000, 10_020))
"""Of requests whose answers once differed, and others."""

LENGTH = 60
"""Requests of a sequence."""


@pytest.fixture(scope="module")
def simulated() -> dict[int, str]:
    """Seed -> the answers of the simulated one."""
    command = [sys.executable, "-m", "tools.simulation.comparison", str(LENGTH), "/compared"]
    done = subprocess.run(
        [*command, *map(str, SEEDS)], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=240
    )
    return dict(zip(SEEDS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers_and_events(
    settings: Settings, simulated: dict[int, str], seed: int
) -> None:
    root = f"/compared-{seed}"
    with comparison.recorded(settings, root) as recorder:
        recorder.run(comparison.sequence_of(seed, LENGTH))
        real = comparison.text_of([list(lines) for lines in recorder.lines])

    assert simulated[seed] == real
