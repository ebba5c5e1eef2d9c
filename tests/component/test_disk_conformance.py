"""The storage root on a disk passes the suite for a site's own storages; a wrong name is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.conforming import PROJECT, passed

DISK = "tests.support.conforming:disk"


def test_a_disk_keeps_the_promises_of_a_storage(tmp_path: Path) -> None:
    assert passed(tmp_path, f"--arkline-storage={DISK}") > 50


@pytest.mark.parametrize("name", ["tests.support.conforming:none", "no_such_module:none", "tests.support"])
def test_a_backend_that_cannot_be_loaded_is_an_error_of_the_command_line(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", f"--arkline-storage={name}"]

    run = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False
    )

    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: --arkline-storage={name}" in run.stderr


def test_without_an_option_nothing_of_arkline_is_loaded_and_no_test_is_added(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded():\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'pipeline', 'pydantic', 'celery', 'requests'}\n"
    )

    assert passed(tmp_path) == 1


def test_a_sites_own_tests_run_with_the_suite_if_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own() -> None:\n    pass\n")

    assert passed(tmp_path, "test_own.py", f"--arkline-storage={DISK}", "-k", "test_own or reset_leaves") == 2
