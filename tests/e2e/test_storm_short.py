"""A short storm of hostile deposits in every run of the tests; `./dev storm` runs long ones."""

import sys

import pytest

from tests.support.tools import result_of

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="macOS has one address of loopback, and no /proc"),
]


def test_hostile_deposits_fail_with_a_message_and_honest_ones_complete_meanwhile() -> None:
    """... no process is larger than it may be, and nothing is left behind."""
    asked = ("--hostile", "12", "--honest", "6", "--seed", "2")

    result = result_of("tools.storm", *asked, timeout=580)

    assert result["problems"] == []
    assert len(result["messages"]) == result["hostile"] == 12
    assert result["honest_seconds"] > 0
