"""A short schedule of faults in every run of the tests; `./dev chaos` runs long schedules."""

import sys

import pytest

from tests.support.tools import result_of
from tools.chaos.problem import Category

pytestmark = [
    pytest.mark.timeout(540),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]


def test_eight_faults_lose_nothing_and_do_nothing_twice() -> None:
    asked = ("--seed", "82", "--jobs", "20", "--faults", "8", "--minutes", "0.35", "--quiet")

    result = result_of("tools.chaos", *asked, timeout=500)

    assert result["jobs"] == result["completed"] + result["failed"] + result["deleted"] == 20
    assert result["faults"] == 8
    assert {sort: result[sort] for sort in Category} == dict.fromkeys(Category, 0)
