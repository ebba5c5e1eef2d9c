import zipfile
from pathlib import Path

import pytest

from tools.dev.release import NotReady, changelog_section, project_version
from tools.dev.wheel import MANUAL, SHIPPED, CheckFailed, check_contents

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-11-22

### Added

- A release process.

## [0.1.0] - 2026-11-21

- The beginning.
"""


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert changelog_section("0.2.0", CHANGELOG) == "### Added\n\n- A release process."
    assert changelog_section("0.1.0", CHANGELOG) == "- The beginning."


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "0x2.0"])
def test_a_version_without_a_section_cannot_be_released(version: str) -> None:
    with pytest.raises(NotReady, match="rename Unreleased"):
        changelog_section(version, CHANGELOG)


def test_the_version_is_a_semantic_version() -> None:
    assert [part.isdigit() for part in project_version().split(".")] == [True, True, True]


def wheel_with(folder: Path, *names: str) -> Path:
    path = folder / "arkline-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*names, f"arkline-1.0.0.data/data/{MANUAL}"):
            archive.writestr(name, "")
    return path


def test_a_wheel_with_the_packages_alone_passes(tmp_path: Path) -> None:
    check_contents(wheel_with(tmp_path, *SHIPPED, "arkline-1.0.0.dist-info/METADATA"))


@pytest.mark.parametrize("changed", [SHIPPED | {"tests/test_states.py"}, SHIPPED - {"pipeline"}])
def test_a_wheel_with_too_much_or_too_little_is_refused(tmp_path: Path, changed: frozenset[str]) -> None:
    with pytest.raises(CheckFailed, match=r"tests|pipeline"):
        check_contents(wheel_with(tmp_path, *changed))
