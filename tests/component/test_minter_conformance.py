"""The local minter and EZID's pass the suite; one that mints twice and one that fails jobs do not."""

from pathlib import Path

import pytest

from tests.support.conforming import passed

SUBJECTS = "--arkline-minter=tests.support.conforming_minters"


def test_ezid_passes(tmp_path: Path) -> None:
    assert passed(tmp_path, f"{SUBJECTS}:of_ezid") == 16


def test_the_local_minter_passes_what_needs_no_registry(tmp_path: Path) -> None:
    assert passed(tmp_path, f"{SUBJECTS}:local", "-rs") == 9


@pytest.mark.parametrize(
    ("subject", "test"),
    [
        ("forgetful", "test_the_same_job_gets_the_same_ark"),
        ("hasty", "test_jobs_wait_for_a_registry_that_is_away"),
    ],
)
def test_a_minter_that_breaks_a_promise_fails(tmp_path: Path, subject: str, test: str) -> None:
    with pytest.raises(AssertionError, match=f"_ {test}"):
        passed(tmp_path, f"{SUBJECTS}:{subject}", "-k", test)
