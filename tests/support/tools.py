"""Runs a tool of this project that needs a whole stack, and reads its result."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoints.stack import java
from entrypoints.stack.services import ServerMissing, find_redis
from tests.support.requirements import unavailable

PROJECT = Path(__file__).parents[2]


def result_of(module: str, *arguments: str, timeout: float) -> dict[str, Any]:
    """The document that `python -m MODULE ARGUMENTS --json` prints; it has to end with success."""
    if java.find() is None or find_redis() is None:
        unavailable(ServerMissing("ZooKeeper, Java or Redis is not on this machine"))
    try:
        run = subprocess.run(
            (sys.executable, "-W", "ignore", "-m", module, *arguments, "--json"),
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stderr or b"").decode(errors="replace")  # bytes, whatever `text` is
        pytest.fail(f"{module} has not ended after {timeout:.0f} s; it said:\n{said[-5000:]}", pytrace=False)
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result
