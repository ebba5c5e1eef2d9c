"""A fleet under load changes its release: process by process and back, or with an announced stop."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from entrypoints.stack.child import Process, free_ports
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.e2e.collection import body_of
from tests.servers.http_source import HttpSource
from tests.support.fleet import PROJECT, Fleet, batch_ended, environment
from tests.support.requirements import unavailable
from tests.support.under_load import Load, under_load
from tests.support.web import Caller, new_token
from tests.upgrade import releases
from tests.upgrade.releases import Release
from zkstate.connection.session import Session

NOTIFY = ("--notify", "depositor@example.org")

pytestmark = pytest.mark.timeout(300)


def folder_of(release: Release) -> Path:
    try:
        return releases.installed(release)
    except releases.NotBuilt as error:
        unavailable(f"{release.version} cannot be built here, from a clone with its history: {error}")


def await_board(web: Caller, process: Process, timeout: float = 60.0) -> int:
    """The number of batches on the board of a web process, once it answers."""
    deadline = time.monotonic() + timeout
    while True:
        assert time.monotonic() < deadline, process.log_tail(30)
        assert process.running, process.log_tail(30)
        try:
            answer = web.get("/v1/batches")
        except requests.ConnectionError:
            time.sleep(0.2)  # the port is not open yet: no event says when
            continue
        if answer.status_code == 200:
            return int(answer.json()["total"])
        time.sleep(0.2)


def await_line(process: Process, words: str, timeout: float = 60.0) -> None:
    """Return once the process has logged the words."""
    deadline = time.monotonic() + timeout
    while words not in process.command.log.read_text():
        assert time.monotonic() < deadline, process.log_tail(30)
        time.sleep(0.1)  # a line in a log is no event


def test_a_fleet_is_upgraded_process_by_process_under_load_and_back_one_step(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    before, port = folder_of(releases.BEFORE), free_ports(1)[0]
    fleet.code = before
    starts: dict[str, Callable[[], Process]] = {
        "worker-1": lambda: fleet.worker("worker-1"),
        "worker-2": lambda: fleet.worker("worker-2"),
        "beat": fleet.beat,
        "web": lambda: fleet.start("web", "-m", "arkline", "web", "--port", str(port), wait=False),
    }
    running = {name: start() for name, start in starts.items()}
    with under_load(session, settings, source) as load:
        load_completes(load)
        web = Caller(f"http://127.0.0.1:{port}", new_token(settings, "ann", Role.OPERATOR))
        for code in (PROJECT, before):
            for name, start in starts.items():
                running[name].stop(30)
                fleet.code = code
                running[name] = start()
                if name in ("worker-1", "beat"):  # then one worker, and both, are of the other release
                    load_completes(load)
            assert await_board(web, running["web"]) >= len(load.bids) - 1
    load.ended()


def test_an_announced_stop_leads_from_0_2_1_to_this_release_and_0_2_1_is_refused_afterwards(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    earlier = folder_of(releases.ANNOUNCED)
    fleet.code = earlier
    running = [fleet.worker("worker-1"), fleet.worker("worker-2"), fleet.beat()]
    load = Load(session, settings, source, objects=1)
    gate = threading.Event()
    urls = [source.put(f"/{name}.txt", body_of(name)) for name in "ab"]
    urls += [source.put(f"/{name}.txt", body_of(name, 100_000), hold=gate, hold_after=50_000) for name in "c"]
    for url in urls:
        load.bids.append(
            of_release(fleet, "submit", "--profile", "demo", "--type", "file", *NOTIFY, url).strip()
        )
    source.await_request("/c.txt", timeout=60)
    batch_ended(session, load.bids[0])

    of_release(fleet, "pause", "--reason", "upgrade")
    for process in running:
        process.stop(30)
    gate.set()
    fleet.code = PROJECT
    fleet.worker("worker-3")
    fleet.beat("beat-2")
    of_release(fleet, "unpause")

    load.ended()
    fleet.code = earlier
    refused = fleet.worker("worker-4", wait=False)
    await_line(refused, "schema 0011, which this release does not know")
    assert not (fleet.folder / "worker-4.ready").exists()  # it waits, and takes no message


def of_release(fleet: Fleet, *arguments: str) -> str:
    """The output of a command of the release that the fleet has now."""
    variables = {**os.environ, **environment(fleet.settings), "PYTHONPATH": str(fleet.code)}
    command = (sys.executable, "-m", "arkline", *arguments)
    done = subprocess.run(command, cwd=fleet.code, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load_completes(load: Load) -> None:
    """A batch that is deposited now completes."""
    batch_ended(load.session, load.deposit())
