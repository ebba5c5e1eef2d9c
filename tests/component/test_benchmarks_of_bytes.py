"""The benchmarks of bytes run, with so little that only their form can be judged."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.requirements import unavailable
from tools.checkout import PROJECT

LITTLE = {"ARKLINE_BENCH_MIB": "1", "ARKLINE_BENCH_FILES": "5", "ARKLINE_BENCH_ROUNDS": "1"}


@pytest.mark.parametrize("name", ["bytes", "small_files", "store"])
def test_a_benchmark_of_bytes_reports_its_ratio_against_its_goal(name: str) -> None:
    if name != "store" and shutil.which("curl") is None:
        unavailable("curl is the baseline of this benchmark: apt-get install curl")

    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--json"],
        cwd=PROJECT,
        env={**os.environ, **LITTLE},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == {"benchmark", "ratio", "goal", "met", "rounds", "figures"}
    assert (result["benchmark"], result["rounds"]) == (name, 1)
    assert result["ratio"] > 0
    assert {"cores", "load", "versions"} <= set(result["figures"])
    spent = [value for figure, value in result["figures"].items() if figure.endswith("_cpu_s")]
    assert len(spent) >= 2
    assert all(spent)
