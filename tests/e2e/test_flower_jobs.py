"""What Flower shows of jobs, in a browser: a task for each state, with job, batch, collection and state."""

import base64
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from entrypoints.stack.child import HOST, ask, free_ports
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from tasks.broker import last_task
from tests.e2e.test_task_events import AFTER_IT, BEFORE_THE_DOWNLOAD, deposited, enable_events
from tests.servers.http_source import HttpSource
from tests.support.browser import Chromium, Visitor, chromium
from tests.support.clocks import follow
from tests.support.fleet import LIMIT, Fleet, job_reaches
from tests.support.polling import eventually
from tests.support.processes import await_ready
from zkstate.connection.session import Session
from zkstate.record import jobs

LOGIN = ("me", "secret")
PAGES = "https://deposit.example.org/pages"

ARKLINE_FLOWER = ("-m", "arkline", "flower")


@contextmanager
def running_flower(fleet: Fleet, program: Sequence[str] = ARKLINE_FLOWER) -> Iterator[str]:
    """The address of Flower, which hears the workers."""
    (port,) = free_ports(1)
    fleet.extra = {"FLOWER_BASIC_AUTH": ":".join(LOGIN), "ARKLINE_PUBLIC_URL": PAGES}
    flower = fleet.start("flower", *program, f"--port={port}", wait=False)
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
        _, complete = deposited(session, settings, source.put("/whole.txt", b"whole"))
        whole = job_reaches(session, complete, JobState.COMPLETED)
        bid, jid = deposited(session, settings, slow)
        _, lost = deposited(session, settings, source.url("/missing.txt"))

        before = dict.fromkeys(BEFORE_THE_DOWNLOAD, "SUCCESS")
        downloading = before | {"job.downloading": "STARTED"}
        eventually(lambda: states(url, jid) == downloading, LIMIT)
        assert shown(url, jid)["job.downloading"]["args"] == f"{jid} {bid} demo downloading"
        failed = job_reaches(session, lost, JobState.FAILED)
        seven = dict.fromkeys((*BEFORE_THE_DOWNLOAD, "job.downloading", *AFTER_IT), "SUCCESS")
        eventually(lambda: states(url, complete) == seven, LIMIT)
        eventually(lambda: "FAILURE" in states(url, lost).values(), LIMIT)
        (fault,) = [task for task in shown(url, lost).values() if task["state"] == "FAILURE"]
        assert (fault["args"].split()[0], fault["exception"]) == (lost, failed.status.message)
        assert (last_task(failed), last_task(jobs.load(session, jid))) == (
            fault["uuid"],
            shown(url, jid)["job.downloading"]["uuid"],
        )

        same_times(url, whole)
        same_times(url, failed)
        same_times(url, jobs.load(session, jid))

        with browser.window("light", 1440) as page:
            page.context.set_extra_http_headers(
                {"Authorization": "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()}
            )
            page.goto(f"{url}/tasks")
            page.get_by_role("searchbox").fill("name:job")
            rows = page.get_by_role("row")
            expect(rows.filter(has_text=complete)).to_have_count(len(seven))
            expect(rows.filter(has_text=f"{jid} {bid} demo downloading")).to_contain_text("STARTED")
            expect(rows.filter(has_text=f"{lost} ").filter(has_text="FAILURE")).to_have_count(1)
            Visitor(page, url).picture("flower")

            page.goto(f"{url}/task/{fault['uuid']}")
            link = page.get_by_role("link", name=f"{lost} in arkline")
            expect(link).to_have_attribute("href", f"{PAGES}/find?q={lost}")
            Visitor(page, url).picture("flower-task")

        names = {name.partition(".")[0] for name, _ in listed(url, "name:job")}
        assert names == {"job"} < {name.partition(".")[0] for name, _ in listed(url, "")}
        assert {args.split()[0] for _, args in listed(url, f"args:{lost} state:FAILURE")} == {lost}

        arrives.set()
        job_reaches(session, jid, JobState.COMPLETED)
        eventually(lambda: states(url, jid) == seven, LIMIT)
        same_times(url, jobs.load(session, jid))


def same_times(url: str, job: Job) -> None:
    """Flower has a task for each state of the history, with its times."""
    own = [task for name, task in shown(url, job.jid).items() if name.startswith("job.")]
    tasks = sorted(own, key=lambda task: float(task["started"]))
    entered = [entry.at.timestamp() for entry in job.history]
    ends = list(filter(None, (task["succeeded"] or task["failed"] for task in tasks)))
    begins = [task["started"] for task in tasks[1:]]

    assert [task["name"] for task in tasks] == [
        JOB.task(JobState(entry.state)).name for entry in job.history if entry.state in JOB.working()
    ]
    assert follow(ends, entered[1:])
    # the first one begins when a worker has taken its message
    assert follow(begins, entered[1 : len(tasks)])
