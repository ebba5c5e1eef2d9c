"""The dashboard in a real browser: what people do there, with the mouse and with the keyboard alone."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from pipeline.principal import Role
from pipeline.states import Event, FailureKind, JobState
from tests.integration.test_verb_parity import REASON, VERBS, Verb, page_act, planted, recorded
from tests.support import nightly, planting
from tests.support.browser import Chromium, Visitor, chromium, visitor
from tests.support.web import Caller, Web, new_token
from zkstate.connection.session import Session
from zkstate.record import jobs

OF_BOTH_KINDS = (VERBS[0], VERBS[-1])
"""A verb of jobs and one of batches; `tests/integration/test_verb_parity.py` raises all by forms."""

KEEP_THE_STATES_OF_THE_STREAM = """
window.states = [];
new MutationObserver(() => states.push(document.documentElement.dataset.stream))
  .observe(document, { subtree: true, attributeFilter: ["data-stream"] });
"""


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def token(web: Web) -> str:
    return new_token(web.context.settings, "olga", Role.OPERATOR)


@pytest.fixture(scope="module")
def failed(session: Session) -> str:
    """A job of a batch with jobs in several states."""
    _, jids = planting.split_batch(session, 8)
    loaded = [jobs.load(session, jid) for jid in jids]
    for job in loaded[:4]:
        planting.apply_event(session, job, Event.FAIL, FailureKind.SYSTEM)
    planting.apply_event(session, loaded[5], Event.FAIL, FailureKind.CONTENT)
    planting.complete(session, loaded[6])
    return jids[0]


@pytest.fixture
def olga(browser: Chromium, web: Web, token: str, failed: str) -> Iterator[Visitor]:
    with visitor(browser, web.url) as opened:
        opened.log_in(token)
        yield opened


@pytest.mark.parametrize("name", ["olav", "olga.archivist@library.example.edu"])
def test_the_navigation_of_an_operator_is_one_row(browser: Chromium, web: Web, name: str) -> None:
    with visitor(browser, web.url, width=1280) as opened:
        opened.log_in(new_token(web.context.settings, name, Role.OPERATOR))
        tops = opened.page.evaluate(
            "new Set([...document.querySelectorAll('header nav a')].map(a => a.offsetTop)).size"
        )
        assert tops == 1


def test_a_row_of_a_table_is_a_card_with_titles_in_a_narrow_window(
    browser: Chromium, web: Web, token: str, failed: str
) -> None:
    with visitor(browser, web.url, width=390) as opened:
        opened.log_in(token)
        row = opened.open("/jobs").locator("tbody tr", has_text=failed).first
        titles = row.locator("td").evaluate_all("cells => cells.map(cell => cell.dataset.title)")

    assert titles == ["Tick", "Job", "Object", "State", "Since", "Batch", "Deposit", "Collection", "Message"]


def test_an_open_page_follows_the_job_without_a_reload(olga: Visitor, session: Session) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL)
    page = olga.open(f"/jobs/{job.jid}")
    expect(page.locator("#live > p .state").first).to_have_text("failed")

    planting.apply_event(session, jobs.load(session, job.jid), Event.RESUME)

    expect(page.locator("#live > p .state").first).to_have_text("pending")
    expect(page).to_have_title(f"{job.jid} pending · arkline")
    assert olga.complaints == []


UNTIL_THE_PAGE_IS_READ = """
new Promise(resolve => {
  const look = () => document.readyState === "loading" || resolve();
  document.addEventListener("readystatechange", look);
  look();
})
"""
"""Playwright's own wait evaluates a string when it polls, which the pages' policy forbids."""


def test_a_page_whose_second_script_arrives_late_follows_the_record_too(olga: Visitor, failed: str) -> None:
    requested: list[str] = []

    def after_the_page_is_read(route: Route) -> None:
        requested.append(route.request.url)
        olga.page.evaluate(UNTIL_THE_PAGE_IS_READ)
        olga.page.evaluate(
            "new Promise(resolve => setTimeout(resolve, 100))"
        )  # whatever began before has ended
        route.continue_()

    olga.page.route("**/hx-sse.min.js*", after_the_page_is_read)
    olga.open(f"/jobs/{failed}")

    assert len(requested) == 1


@pytest.mark.parametrize("answer", [503, None], ids=["refused", "broken off"])
def test_a_page_whose_stream_is_not_opened_at_once_says_so_and_follows_the_record_later(
    olga: Visitor, failed: str, answer: int | None
) -> None:
    requested: list[str] = []

    def refuse_the_first(route: Route) -> None:
        requested.append(route.request.url)
        if len(requested) > 1:
            route.continue_()
        elif answer:
            route.fulfill(status=answer, body="no room")
        else:
            route.abort()

    olga.page.route("**/live/jobs/*", refuse_the_first)
    olga.page.add_init_script(KEEP_THE_STATES_OF_THE_STREAM)
    olga.open(f"/jobs/{failed}")

    assert len(requested) == 2
    assert olga.page.evaluate("states") == ["lost", "open"]
    expect(olga.page.get_by_text("no room")).to_have_count(0)


def test_from_the_front_page_two_clicks_lead_to_the_cause_and_resume_what_it_stopped(
    olga: Visitor, session: Session, failed: str
) -> None:
    page = olga.open("/")
    page.locator("section[aria-labelledby=failures] li a").first.click()
    page.get_by_role("button", name="Resume these jobs: preview").click()
    page.get_by_role("button", name="Resume exactly these").click()

    expect(page.get_by_text("done, 0 refused")).to_be_visible()
    assert jobs.load(session, failed).status.status is JobState.PENDING


@pytest.mark.parametrize(
    "verb",
    [verb if verb in OF_BOTH_KINDS else pytest.param(verb, marks=nightly.case) for verb in VERBS],
    ids=lambda verb: f"{verb.kind}-{verb.event}",
)
def test_a_verb_is_done_by_its_button_and_recorded_with_the_reason(
    olga: Visitor, web: Web, session: Session, verb: Verb
) -> None:
    name = planted(session, verb)
    page = olga.open(f"/{verb.kind}/{name}")
    form = page.locator(f"form:has(input[name=act][value='{page_act(verb)}'])").first

    form.get_by_label("Reason for").fill(REASON)
    with page.expect_navigation(), page.expect_response("**/act") as answer:
        form.get_by_role("button").click()

    assert answer.value.status < 400
    _, event, by, _, message = recorded(session, web.context.settings, name)
    assert event in {"", verb.event}
    assert by == "olga"
    assert REASON in message


def test_of_two_tabs_the_second_is_shown_who_was_first_and_what_is_possible_now(
    browser: Chromium, web: Web, olga: Visitor, session: Session
) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL)
    mine = olga.open(f"/jobs/{job.jid}")
    mine.route("**/live/**", lambda route: route.abort())  # an open page would have followed
    mine.reload()
    with visitor(browser, web.url) as oscar:
        oscar.log_in(new_token(web.context.settings, "oscar", Role.OPERATOR))
        theirs = oscar.open(f"/jobs/{job.jid}")
        theirs.get_by_role("button", name="Resume").click()
        expect(theirs.get_by_text("is now pending")).to_be_visible()

    mine.get_by_role("button", name="Resume").click()

    said = mine.get_by_role("status").filter(has_text="has changed since you read it: pending")
    expect(said).to_contain_text("changed by oscar")
    expect(mine.get_by_role("button", name="Hold")).to_be_enabled()
    assert jobs.load(session, job.jid).status.status is JobState.PENDING


def test_the_keyboard_alone_finds_a_job_and_puts_it_on_its_way_again(olga: Visitor, session: Session) -> None:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL)
    page = olga.open("/")

    page.keyboard.press("/")
    page.keyboard.type(job.jid)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job.jid}")
    resume = page.locator("section[aria-labelledby=why] button", has_text="Resume")
    for _ in range(40):
        page.keyboard.press("Tab")
        if resume.evaluate("button => button === document.activeElement"):
            break
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").filter(has_text="is now pending")).to_be_visible()
    assert jobs.load(session, job.jid).status.status is JobState.PENDING


def test_a_program_is_logged_in_by_a_click_of_the_person(olga: Visitor, web: Web) -> None:
    login = web.anybody.post("/v1/login/device", {"host": "workstation"}).json()
    page = olga.open(f"/login/device?code={login['user_code']}")
    expect(page.locator("dl")).to_contain_text("workstation")
    assert (olga.barriers(), olga.too_wide()) == ([], [])

    page.get_by_role("button", name="Yes, log it in").click()

    expect(page.get_by_role("status")).to_contain_text("The program on workstation is logged in as olga.")
    assert olga.barriers() == []
    asked = web.anybody.post("/v1/login/token", {"device_code": login["device_code"]}).json()
    caller = Caller(web.url, asked["access_token"]).get("/v1").json()["caller"]
    assert (caller["name"], caller["role"]) == ("olga", "operator")


def test_a_request_of_the_api_page_is_sent_as_the_person_of_the_page(olga: Visitor) -> None:
    page = olga.open("/docs")

    page.get_by_role("button", name="GET /v1/profiles").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()

    expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    olga.picture("docs", whole=False)
    assert olga.barriers() == []
    assert olga.complaints == []
