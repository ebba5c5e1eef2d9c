"""Workers come and go under load, drained before they stop: no try is counted and no attempt is repeated."""

import os
import socket
import time

import pytest

from operations.fleet import fleet as workers
from operations.site import Site
from pipeline.settings import Settings
from pipeline.states import JOB
from tests.servers.http_source import HttpSource
from tests.support import cli
from tests.support.fleet import Fleet
from tests.support.nightly import often
from tests.support.operators import ANN
from tests.support.under_load import under_load
from zkstate.connection.session import Session
from zkstate.fleet import holds

pytestmark = pytest.mark.timeout(1800)

TIMES = often(10, 100)
"""Starts and stops of a worker; the long form: `NIGHTLY=1 ./dev test tests/e2e/test_scaling_drill.py`."""

DRAIN = 60.0
"""Seconds; more than any step of the load takes."""


def drain(site: Site, worker: str, *, by_command: bool) -> None:
    """As the hook of a pod does: return once the worker has no task. The command loads all of the program."""
    if by_command:
        limit = f"{DRAIN:.0f}s"
        drained = cli.run(site.settings, "drain", "--until-stop", "--wait", limit, "--reason", "x", worker)
        assert drained.code == 0, drained.err
        return
    assert workers.drain(site, ANN, worker, until_stop=True).followed
    deadline = time.monotonic() + DRAIN
    while not any(one.name == worker and not one.busy for one in workers.workers(site.settings)):
        assert time.monotonic() < deadline, f"{worker} still has a task"


def test_workers_that_are_started_and_stopped_under_load_repeat_no_attempt_and_count_no_try(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    site = Site(settings, session)
    fleet.worker("base", 1)
    fleet.beat()
    with under_load(session, settings, source) as load:
        for number in range(TIMES):
            name = f"extra-{number}"
            worker = fleet.worker(name)
            own = f"{name}@{socket.gethostname()}"
            drain(site, own, by_command=number == 0)
            assert holds.drained(session)[own].until_stop
            worker.terminate()
            assert worker.wait(60) == os.EX_OK, worker.log_tail(30)
            assert holds.drained(session) == {}

    ended = load.ended()
    assert sum(job.status.attempt - len(JOB.working()) for job in ended) == 0
    at_work = {entry.by for job in ended for entry in job.history if entry.by.startswith("worker ")}
    assert len(at_work) > TIMES / 2  # those that came took jobs
