"""The figures of the last hours and the time left of batches: page, API and command line, of real stores."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from operations import site as site_module
from operations.board import throughput
from operations.board.board import Board
from operations.board.values import EVERYTHING
from operations.site import Site
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks import stores
from tests.support import cli as arkline
from tests.support import planting
from tests.support.boards import until
from tests.support.operators import ANN
from tests.support.recordings import of_job, stored_file
from tests.support.web import Browser, Web, serving_board
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds, outages
from zkstate.fleet.holds import Hold
from zkstate.record import jobs


@pytest.fixture
def deployed(session: Session, settings: Settings) -> Settings:
    stores.compare(session, settings)  # gives the three stores their deployment id
    return settings


@pytest.fixture
def web(deployed: Settings) -> Iterator[Web]:
    with serving_board(deployed) as running:
        yield running


def store(settings: Settings, name: str, **other: object) -> None:
    """Enter a version of 7 new bytes that was stored now."""
    entered = of_job(name, **other)
    version = replace(entered.version, created=now(), files=(stored_file("producer/a.jpg", size=7),))
    open_inventory(settings.inventory).record(replace(entered, version=version))


def stored(web: Web, **caller: object) -> int:
    """How many objects were stored in the hours that the caller sees."""
    asked = web.caller(Role(str(caller.pop("role", Role.VIEWER))), **caller)  # type: ignore[arg-type]
    return sum(hour["stored"] for hour in asked.get("/v1/board").json()["hours"])


def test_the_figures_are_those_of_the_stores_after_a_restart_too(
    deployed: Settings, session: Session
) -> None:
    for number in range(3):
        store(deployed, str(number))
    planting.job_in(session, JobState.FAILED)
    resumed = planting.job_in(session, JobState.FAILED, None)
    planting.apply_event(session, resumed, Event.RESUME)

    for process in ("first", "second"):
        with serving_board(deployed) as web:
            await_failures(web.context.board)
            hours = web.caller(Role.VIEWER, name=process).get("/v1/board").json()["hours"]
            assert sum(hour["stored"] for hour in hours) == 3
            assert sum(hour["bytes"] for hour in hours) == 21
            assert sum(hour["failed"] for hour in hours) == 1


def await_failures(board: Board) -> None:
    """Wait until the board has read every failed job."""
    until(board, lambda: board.failed_by_hour(EVERYTHING, now() - timedelta(days=1)) is not None)


def test_hours_before_the_deployment_began_are_absent(web: Web) -> None:
    assert 1 <= len(web.caller(Role.VIEWER).get("/v1/board").json()["hours"]) <= 2


def test_everyone_sees_the_figures_of_what_they_may_see(deployed: Settings) -> None:
    store(deployed, "1", profile="demo", depositor="token:anna")
    store(deployed, "2", profile="demo", depositor="token:ben")
    store(deployed, "3", profile="maps", depositor="token:anna")

    with serving_board(deployed) as web:
        assert stored(web, name="all") == 3
        assert stored(web, name="some", collections=("maps",)) == 1
        assert stored(web, name="anna", role=Role.DEPOSITOR) == 2


def test_without_the_inventory_what_was_stored_is_absent_and_what_failed_is_not(
    deployed: Settings, session: Session
) -> None:
    planting.job_in(session, JobState.FAILED)
    site_module.inventory_file(deployed).unlink()

    with serving_board(deployed) as web:
        await_failures(web.context.board)
        (*_, hour) = throughput.last_hours(web.context.throughput(), web.context.board, EVERYTHING)
        answer = web.caller(Role.VIEWER).get("/v1/board").json()

    assert (hour.stored, hour.bytes, hour.failed) == (None, None, 1)
    assert answer["stored_as_of"] is None


def test_many_viewers_cost_one_reading(web: Web) -> None:
    viewer = web.caller(Role.VIEWER)
    viewer.get("/v1/board")
    first = web.context.throughput()
    assert viewer.get("/v1/board").json()["stored_as_of"] is not None

    for path in ("/v1/board", "/v1/batches") * 5:
        assert viewer.get(path).ok

    assert first is not None
    assert web.context.throughput() is first


def test_a_reading_reads_three_hours_again(site: Site, deployed: Settings) -> None:
    first = throughput.read(site, None)
    assert first is not None
    store(deployed, "1")
    marked = replace(first, hours=dict.fromkeys(first.hours, ()))

    again = throughput.read(site, marked)

    assert again is not None
    kept = [hour for hour, stored in again.hours.items() if stored is marked.hours.get(hour)]
    assert len(again.hours) == throughput.HOURS
    assert sum(one.number for stored in again.hours.values() for one in stored) == 1
    assert len(kept) >= throughput.HOURS - 3


@pytest.fixture
def running(deployed: Settings, session: Session) -> str:
    """A batch of 20 jobs that has been at work for ten minutes, and of which 10 are stored."""
    bid, jids = planting.split_batch(session, 20)
    for jid in jids[:10]:
        planting.complete(session, jobs.load(session, jid))
        store(deployed, jid.removeprefix("jid"), bid=bid)
    status = json.loads(session.zk.get(paths.batch_status(bid))[0])
    began = now() - timedelta(minutes=10)
    session.zk.set(
        paths.batch_status(bid), json.dumps(status | {"last_modified": began.isoformat()}).encode()
    )
    return bid


def test_page_api_and_command_line_say_the_same_time_left(running: str, deployed: Settings, web: Web) -> None:
    viewer = web.caller(Role.VIEWER)

    (row,) = viewer.get("/v1/batches").json()["rows"]
    view = viewer.get(f"/v1/batches/{running}").json()
    shown = arkline.run(deployed, "status", running)
    fleet = arkline.run(deployed, "status", ARKLINE_URL=web.url, ARKLINE_TOKEN=viewer.token)
    page = Browser(web, viewer.token).open(f"/batches/{running}")

    assert 550 < row["seconds_left"] < 650
    assert view["seconds_left"] == row["seconds_left"]
    assert re.search(r"50 % of 20 jobs, about (9|10) minutes left", shown.out)
    assert re.search(rf"{running} .*about (9|10)m", fleet.out)
    assert re.search(r"10 of 20 objects stored, about (9|10) minutes left", page)


@pytest.mark.parametrize("stop", ["pause", "hold", "outage"])
def test_nothing_is_said_while_a_batch_cannot_get_on(
    running: str, web: Web, session: Session, stop: str
) -> None:
    viewer = web.caller(Role.VIEWER)
    assert viewer.get(f"/v1/batches/{running}").json()["seconds_left"] is not None

    if stop != "outage":
        holds.place(session, Hold.of(ANN, "moved"), "demo" if stop == "hold" else None)
    else:
        outages.report(session, ServiceDown(Service.STORAGE, "the disk is full"), "host")

    until(web.context.board, lambda: viewer.get("/v1/batches").json()["rows"][0]["seconds_left"] is None)
    assert viewer.get(f"/v1/batches/{running}").json()["seconds_left"] is None
