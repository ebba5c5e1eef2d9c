"""`arkline worker`, `beat` and `flower` as processes of their own."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from entrypoints.stack.child import HOST, ask, free_ports
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import body_of, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import PROJECT, Fleet, batch_ended, environment, job_reaches
from tests.support.processes import await_ready
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

ARKLINE = (sys.executable, "-W", "ignore", "-m", "arkline")


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*ARKLINE, *arguments]
    return subprocess.run(
        command, cwd=PROJECT, env=around(variables), capture_output=True, text=True, timeout=60, check=False
    )


def around(variables: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": str(PROJECT), **variables}


def test_a_worker_stopped_by_sigterm_hands_back_and_the_next_one_completes_the_deposit(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.start("beat", "-m", "arkline", "beat", wait=False)
    first = fleet.start("first", "-m", "arkline", "worker", "--name", "first", "--processes", "2")
    gate = threading.Event()
    url = source.put("/long.bin", body_of("long", 300_000), hold=gate, hold_after=100_000, piece=1_000)
    bid = submit(session, settings, url, SubmissionType.FILE)
    source.await_request("/long.bin", times=2, timeout=60)
    (jid,) = batches.all_jobs(session, bid)
    job_reaches(session, jid, JobState.DOWNLOADING)
    assert run("worker", "--check", "--name", "first", **environment(settings)).returncode == 0
    assert run("worker", "--check", "--name", "nobody", **environment(settings)).returncode != 0

    first.terminate()
    assert first.wait(60) == 0
    assert jobs.load(session, jid).status.tries == 0
    gate.set()
    second = fleet.start("second", "-m", "arkline", "worker", "--processes", "2")

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    assert "tasks.worker_program" in Path(f"/proc/{second.pid}/cmdline").read_text()


def test_flower_answers_below_its_prefix_and_asks_for_a_password(settings: Settings, fleet: Fleet) -> None:
    (port,) = free_ports(1)
    fleet.extra = {"FLOWER_BASIC_AUTH": "me:secret"}
    arguments = ("arkline", "flower", "--port", str(port), "--url-prefix", "/flower/")
    flower = fleet.start("flower", "-m", *arguments, wait=False)

    def answer(path: str, status: bytes) -> bool:
        return ask(port, b"GET " + path.encode() + b" HTTP/1.0\r\n\r\n", status, seconds=1)

    await_ready(flower, partial(answer, "/flower/healthcheck", b" 200 OK"))
    assert answer("/flower/tasks", b" 401 ")
    flower.terminate()
    assert flower.wait(20) in {0, -signal.SIGTERM}


@pytest.mark.parametrize("command", ["worker", "beat", "flower"])
def test_a_program_that_does_not_wait_names_the_address_that_is_silent(command: str) -> None:
    (port,) = free_ports(1)
    silent = {
        "ARKLINE_ZK_HOSTS": f"{HOST}:{port}",
        "ARKLINE_BROKER_URL": f"redis://:secret@{HOST}:{port}/0",
        "FLOWER_BASIC_AUTH": "me:secret",
    }

    result = run(command, "--no-wait", **silent)

    assert result.returncode == 3
    assert str(port) in result.stderr
    assert "secret" not in result.stderr
