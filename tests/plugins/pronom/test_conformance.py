"""The identification of formats passes the suite of checks."""

from pathlib import Path

from tests.support.conforming import passed


def test_it_passes(tmp_path: Path) -> None:
    assert passed(tmp_path, "--arkline-check=tests.plugins.pronom.conforming:identification") == 10
