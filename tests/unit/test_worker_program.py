"""The program of a worker: what its processes load, and a wrong argument."""

import subprocess
import sys

import pytest

from tasks import worker_program

UNUSED = ("celery.bin", "click_repl", "flower", "prompt_toolkit", "tornado")


def test_a_worker_loads_no_program_that_is_installed_beside_celery() -> None:
    script = f"import sys, tasks.worker_program; print(*[name for name in {UNUSED} if name in sys.modules])"

    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert loaded.stdout.split() == []


def test_a_wrong_argument_is_refused_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        worker_program.main(["--processes", "2"])

    assert "-c CONCURRENCY" in capsys.readouterr().err
