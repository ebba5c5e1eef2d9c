"""The core works where no plugin is installed: the folder cannot be imported, and no entry point names it."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

PROJECT = Path(__file__).parents[2]

ALONE = """
import sys
sys.modules["plugins"] = None  # an import of the package raises ModuleNotFoundError
import pytest
from pipeline import plugins
assert plugins.load_all(plugins.ROUTES) == ()
sys.exit(pytest.main(sys.argv[1:]))
"""

TESTS = (
    "tests/unit/test_web_server.py",
    "tests/component/test_pending_step.py",
    "tests/component/test_download_step.py",
    "tests/component/test_process_step.py",
    "tests/component/test_record_step.py",
    "tests/component/test_export.py",
)
"""A deposit from its first state to the inventory and out again; `ARKLINE_TEST_CORE_ALONE` names others."""


def test_the_cores_tests_pass_without_plugins(tmp_path: Path) -> None:
    installed = distribution("arkline")
    alone = tmp_path / f"arkline-{installed.version}.dist-info"
    alone.mkdir()
    (alone / "METADATA").write_text(installed.read_text("METADATA") or "")
    (alone / "entry_points.txt").write_text("[console_scripts]\narkline = entrypoints.cli.main:main\n")
    chosen = os.environ.get("ARKLINE_TEST_CORE_ALONE", " ".join(TESTS)).split()

    run = subprocess.run(
        [sys.executable, "-c", ALONE, "-q", "-p", "no:cacheprovider", *chosen],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{PROJECT}"},
        capture_output=True,
        text=True,
        timeout=900,
    )

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert " passed" in run.stdout
