"""The benchmarks in their smallest form: they run, and print their figures in the form that others read.

Most start a fleet of their own, so two always run, and the others every night. `./dev check` reads the types
of all of them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.states import JOB
from tests.support import nightly
from tools.chaos.hosts.machine import why_not

PROJECT = Path(__file__).parent.parent.parent

ALWAYS = {
    "both_sides_of_a_benchmark_of_the_fleet",
    "retrievals_beside_a_process_that_hashes_and_sends_the_same_files",
}

Case = Callable[[], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.strip("_")] = function
    return function


def output(name: str, **options: object) -> dict[str, Any]:
    variables = {f"ARKLINE_BENCH_{option.upper()}": str(value) for option, value in options.items()}
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--json"],
        cwd=PROJECT,
        env={**os.environ, "ARKLINE_BENCH_ROUNDS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(name: str, **options: object) -> dict[str, Any]:
    result = output(name, **options)
    assert list(result) == ["benchmark", "ratio", "goal", "met", "rounds", "figures"]
    assert (result["benchmark"], result["rounds"]) == (name, 1)
    assert result["ratio"] > 0
    return result


@case
def _both_sides_of_a_benchmark_of_the_fleet() -> None:
    figures = run("ingest", jobs=4, workers=1)["figures"]

    assert figures["arkline_jobs_per_second"] > 0
    assert figures["chain_jobs_per_second"] > 0
    assert figures["arkline_packets_a_job"] > 1
    assert figures["arkline_cpu_ms_a_job_by_process"]["zookeeper"] > 0
    assert {"zookeeper", "celery (Python)"} <= set(figures["versions"])


@case
def _the_longer_benchmark_of_the_fleet() -> None:
    assert run("lifecycle", jobs=4, workers=1)["figures"]["chain_jobs_per_second"] > 0


@case
def _jobs_with_tls_and_without() -> None:
    figures = run("tls", jobs=4, workers=1)["figures"]

    assert figures["plain_cpu_ms_a_job_by_process"]["zookeeper"] > 0
    assert figures["tls_cpu_ms_a_job_by_process"]["zookeeper"] > 0
    assert figures["tls_packets_a_job"] > 1


@case
def _jobs_with_a_listener_to_the_events_of_their_tasks_and_without() -> None:
    figures = run("listening", jobs=4)["figures"]

    assert figures["listened_cpu_ms_a_job"] > 0
    assert figures["quiet_cpu_ms_a_job"] > 0
    assert figures["without_packets_a_job"] > 1


@case
def _deposits_on_an_idle_stack_beside_the_work_by_hand() -> None:
    figures = run("latency", jobs=2)["figures"]

    assert 0 < figures["by_hand_ms_p50"] < figures["submit_to_completed_ms_p50"]
    assert figures["submit_to_completed_ms_p50"] <= figures["submit_to_completed_ms_p95"]


@case
def _the_recovery_of_a_job_in_every_working_state() -> None:
    figures = run("recovery", session_timeout=4)["figures"]

    assert set(figures["by_state_s"]) == set(JOB.working())
    assert 0 < figures["median_s"] <= figures["slowest_s"]


@case
def _moves_lists_and_periodic_work_among_many_jobs() -> None:
    figures = run("scale", few=80, jobs=160, moved=2, commands="jobs_pending")["figures"]

    assert figures["znodes_at_160"] > figures["znodes_at_80"]
    assert figures["packets_a_move_at_160"] > 1
    assert figures["idle_sweep_packets_at_160"] > 0
    assert figures["jobs_pending_s"] > 0


@case
def _searches_of_both_databases_while_deposits_are_entered() -> None:
    figures = output("search", objects=1500, queries=32)

    assert figures["hits"] > 100
    assert figures["sqlite_depositor_p95_s"] > 0
    if "postgresql_depositor_p95_s" in figures:
        assert figures["same_hits"]


@case
def _the_preview_of_a_deposit_and_a_correction() -> None:
    figures = run("drafts", rows=50)["figures"]

    assert 0 < figures["preview_cpu_s"] <= figures["slowest_preview_cpu_s"]
    assert figures["correction_bytes"] < 200


@case
def _deposits_with_many_objects_and_with_none() -> None:
    result = output("endurance", objects=300, stored=3, block=1, minutes=0, jobs=2, workers=1)

    figures = result.get("figures", {})
    assert (result["ratio"] > 0, result["rounds"]) == (True, 1)
    assert figures["jobs"] >= 2
    assert figures["questions"] > 30


@case
def _retrievals_beside_a_process_that_hashes_and_sends_the_same_files() -> None:
    figures = output("retrieve", mib=8, files=30)["figures"]

    assert all(figures[f"{kind}_ratio"] > 0 for kind in ("file", "bag", "zip"))
    assert figures["file_retrieved_cpu_s"] >= 0


@case
def _a_fleet_near_zookeeper_and_at_a_distance() -> None:
    figures = run("fleet", processes=2, jobs=1, step_ms=10)["figures"]

    trips = figures["zookeeper_round_trip"]
    assert trips["distant_ms"] > trips["near_ms"]
    assert figures["speed_up"] == {"2": 1.0}
    assert figures["distant_jobs_per_second"] > 0


@case
def _one_two_and_three_hosts_with_a_delay_between_them() -> None:
    if reason := why_not():
        pytest.skip(f"not run: {reason}")
    figures = run("hosts", jobs=1, processes=1, step_ms=1)["figures"]

    assert all(figures[f"hosts_{count}_jobs_per_second"] > 0 for count in (1, 2, 3))


@case
def _a_large_batch_from_its_submission_to_its_removal() -> None:
    """Steps that wait bound the jobs a second, so that some samples lie within each fifth of the jobs."""
    figures = run("backlog", jobs=30, step_ms=30, others=1, commands=0, kill=0)["figures"]

    assert (figures["jobs"], figures["carried_jobs"]) == (30, 30)
    assert figures["split_s"] <= figures["submit_to_report_s"]
    assert figures["jobs_per_second_last_fifth"] > 0
    assert figures["removal_s"] > 0
    assert figures["others_jobs_per_second_beside_removal"] > 0
    assert {"worker", "beat", "zookeeper", "redis"} <= set(figures["peak_mb"])


@case
def _the_functions_that_a_job_a_command_and_a_request_call() -> None:
    figures = output("walks")["figures"]

    assert len(figures) == 8
    for figure in figures.values():
        functions, files = map(int, re.findall(r"\d+", figure))
        assert 1 < files <= functions


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=nightly.case) for name in CASES]
)
def test_a_benchmark_runs_and_prints_figures(name: str) -> None:
    CASES[name]()
