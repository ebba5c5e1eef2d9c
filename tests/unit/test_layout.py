"""One idea per file; a source file over 500 lines holds two."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
MOST = 500
PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins", "tools", "benchmarks")
SOURCES = sorted(path for name in PACKAGES for path in (PROJECT / name).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_source_file_is_longer_than_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST


LOWER = [path for path in SOURCES if path.relative_to(PROJECT).parts[0] in PACKAGES[:4]]


@pytest.mark.parametrize("path", LOWER, ids=lambda path: str(path.relative_to(PROJECT)))
def test_only_the_command_line_spells_commands_and_exit_codes(path: Path) -> None:
    """Below it a remedy is a `pipeline.errors.Remedy`, and an error has an `ErrorKind`."""
    text = path.read_text()

    assert "`arkline " not in text
    assert "exit_code" not in text
