"""The guest of a site, a wheel of its own: examples/guest/, which docs/developers/guests.md shows."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
GUEST = PROJECT / "examples" / "guest"

PROGRAM = """
from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from pipeline.storage.factory import open_storage
try:
    print(open_storage(Settings()).place)
except UsageRefused as error:
    print(error)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the template's wheel, as pip installs it."""
    described = tomllib.loads((GUEST / "pyproject.toml").read_text())["project"]
    shutil.copytree(GUEST / "archive_guest", tmp_path / "archive_guest")
    info = tmp_path / f"archive_guest-{described['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {described['name']}\nVersion: {described['version']}\n")
    rows = (
        f"[{group}]\n" + "\n".join(f"{name} = {target}" for name, target in points.items())
        for group, points in described["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(rows))
    return tmp_path


def place(site: Path, **variables: str) -> str:
    """Where a process with these variables stores its objects, or why it stores nowhere."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONPATH": f"{site}:{PROJECT}",
            "ARKLINE_HOME": str(site / "home"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_a_plugin_of_a_site_is_used_where_its_setting_is_set(site: Path) -> None:
    root = site / "tape"

    assert place(site) == str(site / "home" / "ocfl")
    assert place(site, ARKLINE_TAPE_ROOT=str(root)) == str(root)
    assert place(site, ARKLINE_TAPE_ROOT="") == str(site / "home" / "ocfl")


def test_its_setting_may_be_a_file_in_the_folder_of_secrets_which_a_variable_precedes(site: Path) -> None:
    (site / "secrets").mkdir()
    (site / "secrets" / "arkline_tape_root").write_text(f"{site / 'tape'}\n")
    secrets = str(site / "secrets")

    assert place(site, ARKLINE_SECRETS=secrets) == str(site / "tape")
    assert place(site, ARKLINE_SECRETS=secrets, ARKLINE_TAPE_ROOT=str(site / "b")) == str(site / "b")
    assert place(site, ARKLINE_SECRETS=secrets, ARKLINE_TAPE_ROOT="") == str(site / "home" / "ocfl")


def test_a_wrong_value_is_refused_as_one_of_the_core(site: Path) -> None:
    assert place(site, ARKLINE_TAPE_ROOT="tape") == ("ARKLINE_TAPE_ROOT: write an absolute path")
