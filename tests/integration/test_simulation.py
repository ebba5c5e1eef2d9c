"""Histories in the simulated world: a seed gives one history, and nothing is lost in any."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import nightly
from tools.simulation.history import FAST, FOLDER, remove_leftovers
from tools.simulation.world import World

RUNS, MINUTES = nightly.often(100, 3000), nightly.often(2, 40)
"""As many histories as fit: each takes about a second of a processor, and other tests go first."""

FEWEST = 12

LIMIT = 60 * MINUTES + 240
"""Seconds, on a loaded machine."""

LEAST = {"rows": 30, "pairs": 60}
"""Rows of the table and pairs that the fewest histories meet: 12 have met 41 and 96."""

pytestmark = pytest.mark.timeout(LIMIT + 60)


def run(*arguments: str, hash_seed: int = 0) -> str:
    done = subprocess.run(
        ["nice", sys.executable, "-m", "tools.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.stdout, done.stderr
    return done.stdout


def simulated(*arguments: str, hash_seed: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *arguments, hash_seed=hash_seed).splitlines()]


def test_the_processes_of_a_run_that_is_killed_end_with_it() -> None:
    command = [sys.executable, "-m", "tools.simulation", "--seed", "1", "--runs", "9", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        workers = [os.pidfd_open(int(child)) for child in children]
        run.kill()

    assert workers
    for worker in workers:
        assert select.select([worker], [], [], 30)[0]
        os.close(worker)


def test_the_folder_of_a_process_that_was_killed_is_removed_and_that_of_one_that_runs_is_not() -> None:
    with subprocess.Popen("true") as ended:
        ended.wait()
    left, own = (FAST / f"{FOLDER}{pid}-test" for pid in (ended.pid, os.getpid()))
    left.mkdir()
    own.mkdir()

    remove_leftovers()

    assert (left.exists(), own.exists()) == (False, True)
    own.rmdir()


def test_a_run_ends_quietly_when_nobody_reads_its_output_any_more() -> None:
    command = f"{sys.executable} -m tools.simulation --seed 1 --runs 3 --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=LIMIT)

    assert json.loads(done.stdout)["seed"] == 1
    assert done.stderr == b""


def test_the_trace_lacks_the_name_of_the_folder_which_differs_between_runs() -> None:
    worlds = {home: World(1, home=home) for home in ("/one", "/two")}
    for home, world in worlds.items():
        world.note("disk", "full", f"{home}/working")

    assert len({world.trace.hexdigest() for world in worlds.values()}) == 1


GOALS = ("process killed at file after fsync", "job failed delete deleted")
TOWARDS = [argument for goal in GOALS for argument in ("--towards", goal)]


def test_a_seed_and_its_goals_give_the_same_history_in_each_process() -> None:
    seeds, processes = nightly.often(3, 20), nightly.often(2, 5)
    runs = [
        simulated("--seed", "7", "--runs", str(seeds), *TOWARDS, hash_seed=number)
        for number in range(processes)
    ]

    traces = [[one["trace"] for one in run] for run in runs]
    assert traces == [traces[0]] * processes
    assert len(set(traces[0])) == seeds
    assert set(GOALS) <= {met for one in runs[0] for met in (*one["pairs"], *one["rows"])}


def test_after_faults_each_object_is_stored_once_and_everything_ends() -> None:
    limits = ("--runs", str(RUNS), "--minutes", str(MINUTES), "--fewest", str(FEWEST))
    histories = simulated("--seed", "100", *limits)

    assert [(one["seed"], one["towards"], one["problems"]) for one in histories if one["problems"]] == []
    assert len(histories) >= FEWEST
    assert sum(len(one["faults"]) for one in histories) > 5 * len(histories)
    for what, least in LEAST.items():
        assert len({met for one in histories for met in one[what]}) >= least


@pytest.mark.parametrize(
    ("seed", "mutation", "rule"), [("1", "epoch-kept", "epoch"), ("3", "reservation-left", "audit")]
)
def test_a_protection_that_is_taken_away_is_missed(seed: str, mutation: str, rule: str) -> None:
    (history,) = simulated("--seed", seed, "--mutation", mutation)

    assert history["problems"][0].startswith(f"{rule}: ")


def test_a_history_that_breaks_a_rule_is_cut_to_what_breaks_it(tmp_path: Path) -> None:
    shortest = tmp_path / "history.json"

    run("--seed", "1", "--mutation", "queue-entry-left", "--minimise", str(shortest))

    assert [kind for kind, *_ in json.loads(shortest.read_text())["items"]] == ["deposit"]
    (again,) = simulated("--history", str(shortest), "--mutation", "queue-entry-left")
    assert again["problems"][0].startswith("queue: ")
