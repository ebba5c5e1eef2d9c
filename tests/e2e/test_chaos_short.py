"""A short schedule of faults in every run of the tests; `./dev chaos` runs long schedules."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.stack import java
from entrypoints.stack.redis import find_program
from entrypoints.stack.zookeeper import ServerMissing
from tests.support.requirements import unavailable
from tools.chaos.problem import Category

pytestmark = [
    pytest.mark.timeout(540),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

PROJECT = Path(__file__).parents[2]


def test_eight_faults_lose_nothing_and_do_nothing_twice() -> None:
    if java.find() is None or find_program() is None:
        unavailable(ServerMissing("ZooKeeper, Java or Redis is not on this machine"))
    asked = ("--seed", "26", "--jobs", "20", "--faults", "8", "--minutes", "0.35", "--json", "--quiet")

    run = subprocess.run(
        (sys.executable, "-W", "ignore", "-m", "tools.chaos", *asked),
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["jobs"] == result["completed"] + result["failed"] + result["deleted"] == 20
    assert result["faults"] == 8
    assert {sort: result[sort] for sort in Category} == dict.fromkeys(Category, 0)
