"""The long forms of tests, which the nightly run executes: `NIGHTLY=1 ./dev test`.

Rule: a test with a long form always runs a short one, which proves the same promise with fewer repetitions or
on fewer cases, at the same settings.
"""

import os
from collections.abc import Iterable

import pytest

NIGHTLY = os.environ.get("NIGHTLY") == "1"

case = pytest.mark.nightly
"""The mark of a case that only the nightly run executes, beside one of the same test that always runs."""


def often(always: int, nightly: int) -> int:
    """How often a test repeats something."""
    return nightly if NIGHTLY else always


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of this run that are left to the nightly one."""
    return [] if NIGHTLY else [item for item in items if item.get_closest_marker("nightly")]


def without_short_form(items: Iterable[pytest.Item]) -> list[str]:
    """The tests of which no case always runs."""
    always: dict[str, bool] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        always[test] = always.get(test, False) or item.get_closest_marker("nightly") is None
    return [test for test, runs in always.items() if not runs]
