"""A short storm of hostile deposits in every run of the tests; `./dev storm` runs long ones."""

import sys

import pytest

from tests.support.tools import result_of
from tools.storm.callers import ACTS

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="macOS has one address of loopback, and no /proc"),
]


SEED = 79
"""Draws four bodies that never end, each of which is given up after a minute. Headers that never end take
two minutes: they are in the nightly storms."""


def test_hostile_deposits_fail_with_a_message_and_honest_ones_complete_meanwhile() -> None:
    """... no process is larger than it may be, and nothing is left behind."""
    asked = ("--hostile", "12", "--honest", "6", "--seed", str(SEED))

    result = result_of("tools.storm", *asked, timeout=580)

    assert result["problems"] == []
    assert len(result["messages"]) == result["hostile"] == 12
    assert result["honest_seconds"] > 0
    assert set(result["acts"]) == set(ACTS)
    assert all(result["acts"].values())
    assert result["web_restarts"] == 0


def test_one_depositor_at_the_worst_delays_no_other_caller_of_the_web_process() -> None:
    """... judged by the quiet time of the same run, because a machine of CI is shared."""
    result = result_of("tools.storm.load", "--seconds", "40", "--files", "10000", "--shared", timeout=300)

    assert result["problems"] == []
    assert {act["act"] for act in result["acts"]} == set(ACTS)
    assert all(act["hostile_answers"] for act in result["acts"])
    assert result["attacked"]["requests"] > 200
    assert result["restarts"] == 0
