"""A request loads its job or its batch once: what may be seen, and what is asked or done, is of one read."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.support import planting
from tests.support.web import Caller, Web, serving_board
from zkstate import paths
from zkstate.connection.session import Session


@pytest.fixture(scope="module")
def web(module_settings: Settings, record: Session) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def olga(web: Web) -> Caller:
    return web.caller(Role.OPERATOR, ["demo"], name="olga")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that are read from now on, but for those that the board reads."""
    nodes: list[str] = []
    get_many = Session.get_many

    def noted(session: Session, asked: Sequence[str]) -> Any:
        if threading.current_thread().name != "board":
            nodes.extend(asked)
        return get_many(session, asked)

    monkeypatch.setattr(Session, "get_many", noted)
    return nodes


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/why"), ("GET", "/timeline"), ("GET", "/progress"), ("POST", "/resume")],
)
def test_a_request_loads_its_job_once(
    record: Session, olga: Caller, read: list[str], method: str, path: str
) -> None:
    job = planting.apply_event(record, planting.job_in(record, JobState.PROCESSING), Event.FAIL)
    read.clear()

    answer = olga.request(method, f"/v1/jobs/{job.jid}{path}", json={} if method == "POST" else None)

    assert answer.status_code == 200, answer.text
    assert read.count(paths.configuration(job.jid)) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/why"), ("GET", "/history"), ("GET", "/report"), ("POST", "/update-report")],
)
def test_a_request_loads_its_batch_once(
    record: Session, olga: Caller, read: list[str], method: str, path: str
) -> None:
    batch = planting.batch_in(record, BatchState.FAILED)
    read.clear()

    answer = olga.request(method, f"/v1/batches/{batch.bid}{path}", json={} if method == "POST" else None)

    assert answer.status_code == 200, answer.text
    assert read.count(paths.submission(batch.bid)) == 1
