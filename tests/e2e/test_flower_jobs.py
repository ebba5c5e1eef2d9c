"""What Flower shows of jobs, in a browser: a task for each state, with job, batch, collection and state."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from entrypoints.stack.child import HOST, ask, free_ports
from pipeline.settings import Settings
from pipeline.states import JobState
from tasks.broker import last_task
from tests.e2e.test_task_events import AFTER_IT, BEFORE_THE_DOWNLOAD, deposited, enable_events
from tests.servers.http_source import HttpSource
from tests.support.browser import Chromium, Visitor, chromium
from tests.support.fleet import LIMIT, Fleet, job_reaches
from tests.support.polling import eventually
from tests.support.processes import await_ready
from zkstate.connection.session import Session
from zkstate.record import jobs

LOGIN = ("me", "secret")


@contextmanager
def running_flower(fleet: Fleet) -> Iterator[str]:
    """The address of Flower, which hears the workers."""
    (port,) = free_ports(1)
    fleet.extra = {"FLOWER_BASIC_AUTH": ":".join(LOGIN)}
    flower = fleet.start("flower", "-m", "arkline", "flower", "--port", str(port), wait=False)
    await_ready(flower, partial(ask, port, b"GET /healthcheck HTTP/1.0\r\n\r\n", b" 200 OK", seconds=1))
    url = f"http://{HOST}:{port}"
    eventually(lambda: requests.get(f"{url}/api/workers", auth=LOGIN, timeout=60).json(), LIMIT)
    yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


def shown(url: str, jid: str) -> dict[str, dict[str, Any]]:
    """Flower's tasks of the job, by name."""
    tasks = requests.get(f"{url}/api/tasks", auth=LOGIN, timeout=60).json()
    return {task["name"]: task for uuid, task in tasks.items() if uuid.startswith(f"{jid}-")}


def listed(url: str, search: str) -> list[tuple[str, str]]:
    """Names and arguments of the tasks that Flower's own search finds."""
    query = {"draw": "1", "start": "0", "length": "100", "search[value]": search}
    order = {"order[0][column]": "0", "order[0][dir]": "asc", "columns[0][data]": "name"}
    answer = requests.get(f"{url}/tasks/datatable", {**query, **order}, auth=LOGIN, timeout=60)
    return [(task["name"], task["args"]) for task in answer.json()["data"]]


def states(url: str, jid: str) -> dict[str, str]:
    return {name: task["state"] for name, task in shown(url, jid).items()}


def test_flower_shows_a_task_for_each_state_of_a_job_while_and_after_it_works(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, browser: Chromium
) -> None:
    arrives = threading.Event()
    fleet.worker()
    with running_flower(fleet) as url:
        enable_events(settings, workers=1)  # Flower does so too, sooner or later
        slow = source.put("/maps.tar", b"slow" * 1000, hold=arrives)
        bid, jid = deposited(session, settings, slow)
        _, lost = deposited(session, settings, source.url("/missing.txt"))

        before = dict.fromkeys(BEFORE_THE_DOWNLOAD, "SUCCESS")
        downloading = before | {"job.downloading": "STARTED"}
        eventually(lambda: states(url, jid) == downloading, LIMIT)
        assert shown(url, jid)["job.downloading"]["args"] == f"{jid} {bid} demo downloading"
        failed = job_reaches(session, lost, JobState.FAILED)
        eventually(lambda: "FAILURE" in states(url, lost).values(), LIMIT)
        (fault,) = [task for task in shown(url, lost).values() if task["state"] == "FAILURE"]
        assert (fault["args"].split()[0], fault["exception"]) == (lost, failed.status.message)
        assert (last_task(failed), last_task(jobs.load(session, jid))) == (
            fault["uuid"],
            shown(url, jid)["job.downloading"]["uuid"],
        )

        with browser.window("light", 1280) as page:
            page.context.set_extra_http_headers(
                {"Authorization": "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()}
            )
            page.goto(f"{url}/tasks")
            row = page.get_by_role("row").filter(has_text=f"{jid} {bid} demo downloading")
            expect(row).to_contain_text("STARTED")
            Visitor(page, url).picture("flower")

        names = {name.partition(".")[0] for name, _ in listed(url, "name:job")}
        assert names == {"job"} < {name.partition(".")[0] for name, _ in listed(url, "")}
        assert {args.split()[0] for _, args in listed(url, f"args:{lost} state:FAILURE")} == {lost}

        arrives.set()
        job_reaches(session, jid, JobState.COMPLETED)
        done = dict.fromkeys((*BEFORE_THE_DOWNLOAD, "job.downloading", *AFTER_IT), "SUCCESS")
        eventually(lambda: states(url, jid) == done, LIMIT)
        history = jobs.load(session, jid).history
        for task, left in zip(sorted(shown(url, jid).values(), key=started), history[1:], strict=True):
            assert abs(task["succeeded"] - left.at.timestamp()) < 1


def started(task: dict[str, Any]) -> float:
    return float(task["started"])
