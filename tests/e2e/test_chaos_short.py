"""A short schedule of faults in every run of the tests; `./dev chaos` runs long schedules."""

import sys

import pytest

from tests.support.tools import result_of
from tools.chaos.problem import Category
from tools.chaos.schedule import NEEDS_CLAMD

pytestmark = [
    pytest.mark.timeout(540),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]


def test_eight_faults_lose_nothing_and_do_nothing_twice() -> None:
    asked = ("--seed", "82", "--jobs", "20", "--faults", "8", "--minutes", "0.35", "--quiet")

    result = result_of("tools.chaos", *asked, timeout=500)

    assert {sort: result[sort] for sort in Category} == dict.fromkeys(Category, 0)
    assert result["faults"] == 8
    ended = result["completed"] + result["failed"] + result["deleted"]
    assert ended == 20 or result["cancelled_batches"] + result["deleted_batches"], result


def test_a_scanner_that_dies_loses_no_finding_and_no_job_and_no_virus_is_stored_where_it_stops_the_job() -> (
    None
):
    clamd_and_workers = (*sorted(kind.label for kind in NEEDS_CLAMD), "kill-pool-process", "kill-worker")
    asked = ("--seed", "7", "--jobs", "30", "--faults", "10", "--minutes", "0.5", "--quiet")

    result = result_of("tools.chaos", *asked, "--only", *clamd_and_workers, timeout=500)

    assert result["jobs"] == result["completed"] + result["failed"] + result["deleted"] == 30
    assert {sort: result[sort] for sort in Category} == dict.fromkeys(Category, 0)
    if result["checks"]:
        assert result["kinds"]["kill-clamd"] >= 1
        assert result["check_runs"] > 0
        assert result["viruses_found"] > 0
