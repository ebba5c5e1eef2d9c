"""Whoever can write to Redis can ask the workers much, and end none of them."""

import time

from celery.app.control import Control

from pipeline.settings import Settings
from tasks.broker import publisher
from tests.support.fleet import Fleet


def answered(control: Control) -> bool:
    """Within a minute: a worker that does not listen yet gets no message, and nobody waits for its answer.

    Celery's limit counts the messages that are read: a late answer to an earlier call would use it up.
    """
    deadline = time.monotonic() + 60
    while not control.ping(timeout=1):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


COMMANDS = (
    *("shutdown", "pool_restart", "pool_shrink", "terminate", "rate_limit", "revoke", "time_limit"),
    *("hello", "conf", "report", "autoscale", "pool_grow", "election"),
)


def test_a_worker_disobeys_every_command_that_could_end_it_drop_its_work_or_show_its_settings(
    settings: Settings, fleet: Fleet
) -> None:
    worker = fleet.worker()
    control = publisher(settings).control
    assert answered(control)  # it listens now: a command to a process that does not is lost
    for number, command in enumerate(COMMANDS, start=1):
        control.broadcast(command, arguments={"n": 1} if command == "pool_shrink" else {})

        # commands are handled in their order: the answer comes after the command was
        assert answered(control), command
        assert worker.running, command
        refusals = worker.command.log.read_text().count("a remote command was refused")
        assert refusals == number, command
