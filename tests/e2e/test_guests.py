"""Guests written from docs/developers/guests.md alone, in an environment that has only the wheel."""

import shutil
from pathlib import Path

import pytest

from pipeline.errors import ServiceUnreachable
from tests.support.requirements import unavailable
from tools.checkout import PROJECT
from tools.dev import wheel
from tools.dev.wheel import Installed

GUEST = PROJECT / "examples" / "guest"

LOADS = """
from pipeline.settings import Settings
from pipeline.storage.factory import open_storage
print(open_storage(Settings()).place)
from importlib.metadata import entry_points
(point,) = entry_points(group="arkline.checks", name="private-keys")
print(point.load()(None).version)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its suites, and a copy of the template, which is installed."""
    try:
        wheel.find_uv()
    except ServiceUnreachable as error:
        unavailable(error)
    built = wheel.build(tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source"))
    installed = wheel.install(built, tmp_path_factory.mktemp("site"), "conformance")
    copy = installed.folder / "guest"
    shutil.copytree(GUEST, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return wheel.install_guest(installed, copy)


def test_a_check_and_a_storage_are_found_by_their_entry_points(site: Installed, tmp_path: Path) -> None:
    chosen = {**site.environment, "ARKLINE_TAPE_ROOT": str(tmp_path), "ARKLINE_HOME": str(tmp_path)}

    said = Installed(site.folder, chosen, site.venv).run("python", "-c", LOADS)

    assert said.split() == [str(tmp_path), "1.0"]


def test_the_storage_passes_the_suite_of_the_wheel(site: Installed) -> None:
    said = site.run("pytest", "-q", "-p", "no:cacheprovider", "tests", "--arkline-storage=conforming:place")

    assert "failed" not in said
    assert int(said.rsplit(" passed", 1)[0].split()[-1]) > 50
