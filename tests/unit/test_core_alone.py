"""The core works where no plugin is installed: the folder cannot be imported, and no entry point names it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

from pipeline.plugins import OURS

PROJECT = Path(__file__).parents[2]

BLOCKED = """
import sys
sys.modules["plugins"] = None  # an import of the package raises ModuleNotFoundError
"""

IMPORTS = """
import importlib, pkgutil
for package in ("pipeline", "zkstate", "tasks", "operations", "entrypoints"):
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    for module in found:
        if "migrations" not in module.name:  # those are programs of Alembic
            importlib.import_module(module.name)

from entrypoints.web.app import ROUTERS, routers
assert routers() == ROUTERS
"""

OPENS = """
from pathlib import Path
from pipeline.inventory.sql import SqlInventory
from pipeline.settings import Settings
from pipeline.steps.context import open_clients
from pipeline.storage.ocfl.storage import OcflStorage
clients = open_clients(Settings(home=Path(sys.argv[1])))
assert (type(clients.storage), type(clients.inventory)) == (OcflStorage, SqlInventory)
"""

NO_CHECKS = """
from importlib.metadata import entry_points
assert not entry_points(group="arkline.checks")
assert not [name for name in sys.modules if name.startswith("plugins.") or name == "pygfried"]
"""

REFUSES = """
from pipeline import plugins
from pipeline.errors import UsageRefused
try:
    plugins.chosen(sys.argv[1])
except UsageRefused as error:
    print(error)
"""

TESTS = """
import pytest
options = ("--disable-plugin-autoload", "-p", "pytest_timeout", "-p", "no:cacheprovider")
assert pytest.main(["-q", *options, *sys.argv[2:]]) == 0
"""

A_DEPOSIT = (
    "tests/component/test_pending_step.py::test_a_manifest_is_kept_as_it_was_given",
    "tests/component/test_download_step.py::test_the_files_of_a_manifest_land_in_its_order",
    "tests/component/test_process_step.py::test_new_content_becomes_the_first_version_of_a_new_object",
    "tests/component/test_process_step.py::test_the_stored_object_has_its_history_in_premis",
    "tests/component/test_record_step.py::test_a_stored_version_is_recorded_with_what_the_profile_and_the_job_say",
    "tests/component/test_record_step.py::test_the_depositors_system_is_told_the_ark_and_the_version",
    "tests/component/test_export.py::test_an_exported_object_is_a_bag_that_an_independent_validator_accepts",
    "tests/unit/test_web_server.py::test_requests_that_arrive_together_from_one_address_are_all_answered",
)
"""From its first state to the inventory and out again; `ARKLINE_TEST_CORE_ALONE` names other tests."""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder in which arkline is installed without a plugin."""
    found = distribution("arkline")
    alone = tmp_path / f"arkline-{found.version}.dist-info"
    alone.mkdir()
    (alone / "METADATA").write_text(found.read_text("METADATA") or "")
    (alone / "entry_points.txt").write_text("[console_scripts]\narkline = entrypoints.cli.main:main\n")
    return tmp_path


def alone(
    installed: Path, programs: Sequence[str], *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "\n".join((BLOCKED, *programs)), *arguments],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": f"{installed}:{PROJECT}", **variables},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_every_module_loads_stores_open_and_a_deposit_goes_through_without_plugins(installed: Path) -> None:
    chosen = os.environ.get("ARKLINE_TEST_CORE_ALONE", " ".join(A_DEPOSIT)).split()

    run = alone(installed, (TESTS, IMPORTS, OPENS, NO_CHECKS), str(installed / "home"), *chosen)

    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert " passed" in run.stdout


@pytest.mark.parametrize(
    ("group", "setting", "extra"),
    [(group, *row) for group, rows in OURS.items() for row in rows.items()],
)
def test_a_setting_of_an_absent_plugin_is_refused_with_what_to_install(
    installed: Path, group: str, setting: str, extra: str
) -> None:
    said = alone(installed, (REFUSES,), group, **{f"ARKLINE_{setting.upper()}": "set"})

    assert f"ARKLINE_{setting.upper()} is set, but the plugin {extra} is not installed" in said.stdout
    assert f"pip install 'arkline[{extra}]'" in said.stdout
