"""Celery's own programs and orders, as docs/operators/celery.md describes them."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import requests
from celery.states import FAILURE, RETRY, STARTED

from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tasks.broker import configured
from tests.e2e.test_flower_jobs import LOGIN, running_flower, shown, states
from tests.e2e.test_task_events import (
    AFTER_IT,
    BEFORE_THE_DOWNLOAD,
    deposited,
    enable_events,
    succeeded,
    watched,
)
from tests.servers.http_source import HttpSource
from tests.support import nightly
from tests.support.fleet import LIMIT, PROJECT, Fleet, environment, job_reaches
from tests.support.polling import eventually
from zkstate.connection.session import Session

FAILS_ONCE: dict[str, Any] = {"status": 500, "status_times": 5, "head": False}
"""A source with which a job waits for its second try, which scheduled work begins."""


@pytest.mark.parametrize("embedded", [False, True], ids=["worker and beat", "worker --beat"])
def test_a_deposit_is_completed_by_celerys_own_worker_and_beat(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path, embedded: bool
) -> None:
    schedule = ("-s", str(tmp_path / "schedule"))
    fleet.celery("worker", "worker", "-c", "2", *(("--beat", *schedule) if embedded else ()))
    if not embedded:
        fleet.celery("beat", "beat", *schedule, wait=False)

    _, jid = deposited(session, settings, source.put("/a.txt", b"a", **FAILS_ONCE))

    done = job_reaches(session, jid, JobState.COMPLETED)
    assert any(entry.event is None for entry in done.history), "it has not waited"


def test_celerys_worker_takes_its_processes_its_queues_and_its_events_from_its_options(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    options = ("-c", "3", "-Q", "control,split", "-E", "--loglevel", "debug")
    with watched(settings) as flower:
        worker = fleet.celery("worker", "--config", "celeryconfig", "worker", "-n", "own@%h", *options)
        bid, _ = deposited(session, settings, source.put("/a.txt", b"a"))
        flower.await_states(bid, *succeeded("batch.split"))
        with configured(settings) as app:
            inspect = app.control.inspect(timeout=30, limit=1)
            ((name, queues),) = (inspect.active_queues() or {}).items()
            ((_, stats),) = (inspect.stats() or {}).items()

    assert name.startswith("own@")
    assert [queue["name"] for queue in queues] == ["control", "split"]
    assert stats["pool"]["max-concurrency"] == 3
    lines = [json.loads(line) for line in worker.command.log.read_text().splitlines() if line[:1] == "{"]
    assert {line["level"] for line in lines} == {"info"}, "ARKLINE_LOG_LEVEL counts"


def test_celerys_flower_shows_workers_and_tasks_and_its_orders_change_nothing(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    arrives = threading.Event()
    worker = fleet.worker()
    with running_flower(fleet, ("-m", "celery", "-A", "arkline", "flower")) as url:
        enable_events(settings, workers=1)
        bid, jid = deposited(session, settings, source.put("/slow.bin", b"slow" * 1000, hold=arrives))
        before = dict.fromkeys(BEFORE_THE_DOWNLOAD, "SUCCESS")
        eventually(lambda: states(url, jid) == before | {"job.downloading": "STARTED"}, LIMIT)
        task = shown(url, jid)["job.downloading"]
        assert task["args"] == f"{jid} {bid} demo downloading"
        (name,) = requests.get(f"{url}/api/workers", auth=LOGIN, timeout=60).json()
        assert name == task["worker"]

        for order in (f"task/revoke/{task['uuid']}?terminate=true", f"worker/shutdown/{name}"):
            assert requests.post(f"{url}/api/{order}", auth=LOGIN, timeout=60).ok
        arrives.set()
        done = job_reaches(session, jid, JobState.COMPLETED)
    assert done.status.redispatches == 0
    assert worker.running


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-P", "solo"), "the pool must be prefork"),
        pytest.param(("-P", "threads"), "the pool must be prefork", marks=nightly.case),
        (("--pool-start-method", "spawn"), "must be forked"),
        (("-Q", "downloads"), "downloads"),
    ],
)
def test_celerys_worker_refuses_what_would_lose_work_and_says_why(
    settings: Settings, options: tuple[str, ...], reason: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "arkline", "worker", *options],
        cwd=PROJECT,
        env={**environment(settings), "PYTHONPATH": str(PROJECT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode != 0
    assert reason in done.stderr


def test_no_order_of_celery_ends_a_carried_state(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    arrives = threading.Event()
    with watched(settings) as flower, configured(settings) as app:
        fleet.worker()
        enable_events(settings, workers=1)
        _, jid = deposited(session, settings, source.put("/slow.bin", b"slow" * 1000, hold=arrives))
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD), ("job.downloading", STARTED))
        first, *_, carried = [task.uuid for task in flower.of(jid)]

        for uuid in (first, carried):
            for terminate in (False, True):
                how = {"task_id": uuid, "terminate": terminate, "signal": "SIGKILL"}
                replies = app.control.broadcast("revoke", how, reply=True, timeout=30, limit=1)
                ((answer,),) = [reply.values() for reply in replies or ()]
                assert "revoke is refused: use arkline" in answer["error"]
        inspect = app.control.inspect(timeout=30, limit=1)
        ((active,),) = (inspect.active() or {}).values()
        assert (active["id"], active["name"]) == (first, "job.pending")
        (of_carried,) = (inspect.query_task(carried) or {}).values()
        assert of_carried == {}

        arrives.set()
        done = job_reaches(session, jid, JobState.COMPLETED)
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD, "job.downloading", *AFTER_IT))
    assert done.status.redispatches == 0


def test_a_time_limit_of_celery_kills_the_process_and_the_sweep_sends_the_job_again(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    arrives = threading.Event()
    with watched(settings) as flower:
        worker = fleet.celery("worker", "worker", "-c", "1", "--time-limit", "20")
        enable_events(settings, workers=1)
        _, jid = deposited(session, settings, source.put("/slow.bin", b"slow" * 1000, hold=arrives))
        flower.await_states(jid, *succeeded(*BEFORE_THE_DOWNLOAD), ("job.downloading", STARTED))
        killed = flower.of(jid)[-1].uuid
        fleet.beat()

        # the record is handed back, unless the process is killed before: Celery gives it 0.1 s
        assert (flower.await_end(killed).state, flower.await_end(killed).exception) in (
            (RETRY, "the worker was stopped"),
            (FAILURE, "the worker was lost"),
        )
        assert f"Hard time limit (20.0s) exceeded for job.pending[{jid}-" in worker.command.log.read_text()
        arrives.set()
        done = job_reaches(session, jid, JobState.COMPLETED)
    assert [entry.state for entry in done.history] == [*JOB.working(), JobState.COMPLETED]
