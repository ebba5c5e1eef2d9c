"""Runs whole commands of the command line, each in its own process."""

import os
import subprocess
import sys
import time
from pathlib import Path

from pipeline.settings import Settings
from tests.support.fleet import environment

_ARKLINE = Path(sys.executable).parent / "arkline"


def seconds(settings: Settings, *arguments: str) -> float:
    """Seconds from the start of the command to its end; it may report findings."""
    start = time.perf_counter()
    done = subprocess.run(
        [str(_ARKLINE), *arguments],
        env={**os.environ, **environment(settings)},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - start
    assert done.returncode in (0, 1), done.stderr
    return round(took, 2)


def seconds_and_peak(settings: Settings, *arguments: str) -> tuple[float, float]:
    """Like `seconds`, with the command's peak memory in megabytes."""
    start = time.perf_counter()
    command = subprocess.Popen([str(_ARKLINE), *arguments], env={**os.environ, **environment(settings)})
    _, status, usage = os.wait4(command.pid, 0)
    took = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) in (0, 1), arguments
    return round(took, 2), round(usage.ru_maxrss / 1024)
