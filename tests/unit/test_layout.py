"""One idea per file: a source file that nears 300 lines is asking to be two."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
MOST = 300
PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "tools", "benchmarks")
SOURCES = sorted(path for name in PACKAGES for path in (PROJECT / name).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_source_file_is_longer_than_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST
