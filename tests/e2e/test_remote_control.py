"""Whoever can write to Redis can ask the workers much, and end none of them."""

import pytest

from pipeline.settings import Settings
from tasks.publisher import publisher
from tests.support.fleet import Fleet


@pytest.mark.parametrize("command", ["shutdown", "pool_restart", "pool_shrink", "terminate", "rate_limit"])
def test_a_worker_disobeys_a_command_that_could_end_it(
    settings: Settings, fleet: Fleet, command: str
) -> None:
    worker = fleet.worker()
    control = publisher(settings).control
    control.broadcast(command, arguments={"n": 1} if command == "pool_shrink" else {})

    # commands are handled in their order: the answer comes after the command was
    assert control.ping(timeout=30, limit=1)
    assert worker.running
    assert "a remote command was refused" in worker.command.log.read_text()
