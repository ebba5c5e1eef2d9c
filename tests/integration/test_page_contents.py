"""What pages draw beside their buttons, the cookie of their login, and what lists cost ZooKeeper."""

import re
from collections.abc import Iterator

import pytest
import requests

from operations.board.values import EVERYTHING
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event
from tests.support import planting
from tests.support.boards import requests_of, until
from tests.support.operators import downloading_job
from tests.support.web import Web, serving
from zkstate.connection.session import Session
from zkstate.record import jobs
from zkstate.record.jobs import JobMove

OWN = {"Sec-Fetch-Site": "same-origin"}
FLOWER = "http://127.0.0.1:5555/flower/"


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    module_settings.working.mkdir(parents=True)
    with serving(module_settings, flower=FLOWER) as running:
        assert running.context.board.wait_filled(30)
        yield running


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


@pytest.fixture(scope="module")
def olga(web: Web) -> requests.Session:
    browser = requests.Session()
    token = web.caller(Role.OPERATOR, name="olga").token
    browser.post(f"{web.url}/login", data={"token": token, "next": "/"}, headers=OWN, timeout=30)
    return browser


def page(web: Web, olga: requests.Session, path: str) -> str:
    answer = olga.get(f"{web.url}{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", answer.text)


def test_the_guide_for_depositors_is_read_without_a_login_and_linked_from_where_a_deposit_begins(
    web: Web, olga: requests.Session
) -> None:
    stranger = requests.Session()

    guide = stranger.get(f"{web.url}/help/deposit", timeout=30, allow_redirects=False)

    assert guide.status_code == 200
    assert '<h1 id="for-depositors">For depositors</h1>' in guide.text
    assert "Log out" not in guide.text
    picture = stranger.get(f"{web.url}/static/deposit.svg", timeout=30)
    assert picture.headers["Content-Type"] == "image/svg+xml"
    assert '<a href="/help/deposit">' in page(web, stranger, "/login")
    for path in ("/deposits", "/deposits/new"):
        assert '<a href="/help/deposit">' in page(web, olga, path)
    assert "Log out olga" in page(web, olga, "/help/deposit")


def test_a_login_that_ended_still_reads_the_guide(web: Web) -> None:
    answer = requests.get(
        f"{web.url}/help/deposit", cookies={"arkline": "ark_revoked"}, timeout=30, allow_redirects=False
    )
    assert (answer.status_code, "Log out" in answer.text) == (200, False)


def test_the_cookie_of_a_login_is_for_this_site_and_for_no_script(web: Web) -> None:
    token = web.caller(Role.VIEWER, name="viola").token

    answer = requests.post(
        f"{web.url}/login",
        data={"token": token, "next": "/"},
        headers=OWN,
        timeout=30,
        allow_redirects=False,
    )

    cookie = answer.headers["Set-Cookie"]
    assert all(part in cookie.lower() for part in ("httponly", "samesite=strict", "path=/"))


def test_the_ribbon_is_on_the_job_the_batch_and_the_board_and_can_be_read_as_a_table(
    web: Web, session: Session, olga: requests.Session
) -> None:
    job = planting.complete(session, planting.one_job(session))
    failed = planting.apply_event(session, planting.one_job(session), Event.FAIL)
    board = web.context.board
    until(board, lambda: sum(group.count for group in board.failures(EVERYTHING)) == 1)

    of_job = page(web, olga, f"/jobs/{job.jid}")
    for path in ("/", f"/batches/{job.bid}", f"/jobs/{failed.jid}"):
        assert re.search(r'<svg class="ribbon[^>]* role="img" aria-label="[^"]+"', page(web, olga, path)), (
            path
        )

    assert 'class="seg is-downloading"' in of_job
    table = of_job.partition("Every step of the job")[2]
    states = [entry.state for entry in jobs.load(session, job.jid).history]
    assert all(f"is-{state}" in table for state in states)


def test_the_page_of_working_storage_draws_what_is_used_reserved_and_left(
    web: Web, olga: requests.Session
) -> None:
    of_space = page(web, olga, "/space")

    label = re.search(r'<svg class="bar"[^>]* aria-label="([^"]+)"', of_space)
    assert label is not None
    assert re.fullmatch(r".* used, .* reserved, of .* that may be used of .*", label[1])
    assert re.search(r"used, .* reserved, .* left of the .* that may be used", of_space)
    assert "0 jobs wait for space" in re.sub(r"<[^>]+>", "", of_space)


def test_the_page_of_working_storage_says_who_gives_it_back_when(
    web: Web, session: Session, olga: requests.Session
) -> None:
    job = downloading_job(session, web.context.settings)

    row = page(web, olga, "/space").partition(f'data-href="/jobs/{job.jid}"')[2].partition("</tr>")[0]

    assert re.search(r"downloading</span> for <time", row), row
    assert "when it ends" in row
    of_api = web.caller(Role.VIEWER, name="victor").get("/v1/space").json()["reservations"]
    assert next(part["gives_back"] for part in of_api if part["jid"] == job.jid) == "at-its-end"


def test_flower_is_linked_from_the_board(web: Web, olga: requests.Session) -> None:
    assert f'<a href="{FLOWER}">Flower</a>' in page(web, olga, "/")


def test_a_jobs_page_leads_to_its_task_in_flower(web: Web, session: Session, olga: requests.Session) -> None:
    job = downloading_job(session, web.context.settings)

    link = f'<a href="{FLOWER}task/{job.jid}-{job.status.epoch}-downloading">its last task in Flower</a>'
    assert link in page(web, olga, f"/jobs/{job.jid}")

    jobs.move(session, planting.acquire(session, job), JobMove(Event.FAIL, "worker a:1", message="no"))

    assert link in page(web, olga, f"/jobs/{job.jid}")


REQUESTS_OF_A_ROW = 3
"""To ZooKeeper: status, configuration and identifiers of the job; those of all rows are one flight."""


def test_lists_but_those_of_jobs_counts_and_streams_cost_zookeeper_nothing_whatever_the_number_of_clients(
    web: Web, session: Session
) -> None:
    planting.apply_event(session, planting.one_job(session), Event.FAIL)
    clients = [web.caller(Role.VIEWER, name=f"viewer-{number}") for number in range(3)]
    lists = ("/v1/batches", "/v1/failures", "/v1/stops")

    def sent_by(rounds: int) -> int:
        before = requests_of(session)
        for client in clients * rounds:
            assert {client.get(path).status_code for path in lists} == {200}
            with client.get("/v1/events", stream=True) as stream:
                assert stream.status_code == 200
        return requests_of(session) - before

    # the board reads now and then what it shows, and compares itself with the record each minute
    assert min(sent_by(rounds=2) for _ in range(5)) == 0


def test_a_list_of_jobs_reads_the_rows_that_it_shows_and_no_others(web: Web, session: Session) -> None:
    for _ in range(5):
        planting.one_job(session)
    olga = web.caller(Role.VIEWER)

    def rows(limit: int) -> int:
        return len(olga.get(f"/v1/jobs?limit={limit}").json()["rows"])

    def sent_by(limit: int) -> int:
        before = requests_of(session)
        assert rows(limit) == limit
        return requests_of(session) - before

    until(web.context.board, lambda: rows(5) == 5)
    # the board reads now and then what it shows
    assert min(sent_by(1) for _ in range(5)) == REQUESTS_OF_A_ROW
    assert min(sent_by(5) for _ in range(5)) == 5 * REQUESTS_OF_A_ROW
