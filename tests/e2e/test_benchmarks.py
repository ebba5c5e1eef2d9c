"""The benchmarks in their smallest form: they run, and print their figures in the form that others read."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent.parent


def run(name: str, **options: object) -> dict[str, Any]:
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
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert list(result) == ["benchmark", "ratio", "goal", "met", "rounds", "figures"]
    assert (result["benchmark"], result["rounds"]) == (name, 1)
    assert result["ratio"] > 0
    return result


@pytest.mark.parametrize("name", ["lifecycle", "ingest"])
def test_both_sides_of_a_benchmark_of_the_fleet_are_measured(name: str) -> None:
    figures = run(name, jobs=4)["figures"]

    assert figures["arkline_jobs_per_second"] > 0
    assert figures["chain_jobs_per_second"] > 0
    assert figures["arkline_packets_a_job"] > 1
    assert figures["arkline_cpu_ms_a_job_by_process"]["zookeeper"] > 0
    assert {"zookeeper", "celery (Python)"} <= set(figures["versions"])
