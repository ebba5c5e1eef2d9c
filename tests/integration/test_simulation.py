"""Histories in the simulated world: a seed gives one history, and nothing is lost in any."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

RUNS = 12
LIMIT = 240
"""Seconds; a history takes one second of CPU."""


def simulated(*arguments: str, hash_seed: int = 0) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tools.simulation", "--json", *arguments],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_seed_gives_the_same_history_in_each_process() -> None:
    first, second = (simulated("--seed", "7", "--runs", "3", hash_seed=number) for number in (1, 2))

    assert [one["trace"] for one in first] == [one["trace"] for one in second]
    assert len({one["trace"] for one in first}) == 3


def test_after_faults_each_object_is_stored_once_and_everything_ends() -> None:
    histories = simulated("--seed", "100", "--runs", str(RUNS))

    assert [one["problems"] for one in histories] == [[]] * RUNS
    assert sum(len(one["faults"]) for one in histories) > 5 * RUNS


@pytest.mark.parametrize("mutation", ["bucket-skipped", "reservation-left"])
def test_a_protection_that_is_taken_away_is_missed(mutation: str) -> None:
    (history,) = simulated("--seed", "1", "--mutation", mutation)

    assert history["problems"]
