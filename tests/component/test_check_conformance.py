"""A check that is a class and one that is a program pass the suite; one that misses its sample does not."""

from pathlib import Path

import pytest

from tests.support.conforming import passed


@pytest.mark.parametrize("subject", ["private_keys", "program"])
def test_an_honest_check_passes(tmp_path: Path, subject: str) -> None:
    assert passed(tmp_path, f"--arkline-check=tests.support.conforming_checks:{subject}") == 10


def test_a_check_that_misses_what_it_is_there_for_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was to be found"):
        passed(tmp_path, "--arkline-check=tests.support.conforming_checks:blind")
