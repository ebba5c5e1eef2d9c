"""A login: who is logged in, with which rights, for how long; and that nobody else is."""

import html
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
import requests

from entrypoints.web.app import create_app
from entrypoints.web.context import Login, WebContext, following
from operations.board.board import Board
from operations.site import Site
from operations.tokens import InvalidToken, hash_of
from pipeline.inventory.sql import open_inventory
from pipeline.inventory.tokens import login_with_hash
from pipeline.principal import Interface, Principal
from pipeline.settings import Settings
from plugins.conformance.given import subject
from plugins.conformance.serving import served
from plugins.conformance.subjects import LoginPlace

SECONDS = 30.0
"""To wait for an answer."""

SOON = 30.0
"""Seconds within which people lose rights that were withdrawn."""

COOKIE = "arkline"

ELSEWHERE = ("https://example.org/", "//example.org/", "/\\example.org/", "/\t/example.org/", "example.org")

NOWHERE = "127.0.0.1:1"
"""No ZooKeeper is there: logins do not need it."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Board]]:
    home = tmp_path_factory.mktemp("home")
    settings = Settings(home=home, zk_hosts=NOWHERE)
    open_inventory(settings.inventory).all_counted()  # creates it: a site has one before its first login
    with following(settings) as opened:
        yield opened


@dataclass(frozen=True)
class Web:
    """A web process with the login under test."""

    url: str
    login: Login
    core: tuple[Site, Board]
    place: LoginPlace

    def button(self, next_page: str = "/v1") -> str:
        return f"{self.url}{self.login.path}?next={quote(next_page, safe='')}"

    def logged_in(self, next_page: str = "/v1") -> tuple[requests.Session, requests.Response]:
        """A browser of the person, and the last answer."""
        browser = requests.Session()
        return browser, self.place.log_in(browser, self.button(next_page))

    def get(self, browser: requests.Session, path: str = "/v1") -> requests.Response:
        return browser.get(f"{self.url}{path}", timeout=SECONDS, allow_redirects=False)

    def caller(self, browser: requests.Session) -> tuple[str, str, list[str] | None]:
        """Name, role and collections of the browser's person."""
        answer = self.get(browser)
        assert answer.status_code == 200, answer.text
        caller = answer.json()["caller"]
        assert caller["interface"] == Interface.WEB
        return caller["name"], caller["role"], caller["collections"] and sorted(caller["collections"])

    @property
    def expected(self) -> tuple[str, str, list[str] | None]:
        person = self.place.person
        return person.name, person.role, None if person.collections is None else sorted(person.collections)

    def session(self, browser: requests.Session) -> str:
        """The session of the browser's login, which arkline keeps."""
        entry = login_with_hash(open_inventory(self.core[0].settings.inventory), hash_of(cookie(browser)))
        assert entry is not None
        return entry.credential


def cookie(browser: requests.Session) -> str:
    """The value of the login's cookie, which may be quoted."""
    return str(browser.cookies.get(COOKIE)).strip('"')


@contextmanager
def process(place: LoginPlace, core: tuple[Site, Board]) -> Iterator[Web]:
    login = place.open()
    context = WebContext(*core)
    vars(context)["login"] = login  # what the setting of the login would choose
    with served(create_app(context)) as url:
        yield Web(url, login, core, place)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoginPlace]:
    with subject(request.config, "login")(tmp_path) as given:
        yield given


@pytest.fixture
def web(place: LoginPlace, core: tuple[Site, Board]) -> Iterator[Web]:
    with process(place, core) as running:
        yield running


def test_the_button_of_the_login_page_leads_to_it_with_the_page_that_was_asked_for(web: Web) -> None:
    page = html.unescape(requests.get(f"{web.url}/login?next=/jobs", timeout=SECONDS).text)

    assert f'href="{web.login.path}?next=' in page
    assert web.login.path.startswith("/")
    assert web.login.path not in ("/", "/login")


def test_a_person_is_logged_in_by_name_with_the_rights_that_the_site_gives(web: Web) -> None:
    before = web.get(requests.Session())
    browser, answer = web.logged_in()

    assert before.status_code == 401
    assert answer.status_code < 400, answer.text
    assert web.caller(browser) == web.expected


def test_the_login_leads_to_the_page_that_was_asked_for(web: Web) -> None:
    _, answer = web.logged_in("/v1?here=1")

    places = (
        answer.url,
        *(step.headers.get("Location", "") for step in answer.history),
        html.unescape(answer.text),
    )
    assert any("/v1?here=1" in text for text in places)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_the_login_leads_to_no_other_site(web: Web, target: str) -> None:
    browser, answer = web.logged_in(target)

    ours = [step for step in (*answer.history, answer) if step.url.startswith(web.url)]
    hosts = {urlsplit(step.headers.get("Location", "").replace("\\", "/")).hostname for step in ours}
    assert "example.org" not in hosts
    assert "example.org" not in html.unescape(answer.text)
    assert web.caller(browser) == web.expected


def test_the_name_is_not_that_of_a_token(web: Web) -> None:
    browser, _ = web.logged_in()

    assert ":" in web.caller(browser)[0]
    assert ":" in web.session(browser)


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(web: Web) -> None:
    browser, _ = web.logged_in()

    (login,) = (one for one in browser.cookies if one.name == COOKIE)
    assert login.has_nonstandard_attr("HttpOnly")
    assert str(login.get_nonstandard_attr("SameSite")).lower() == "strict"


def test_the_browser_never_gets_the_session(web: Web) -> None:
    browser, answer = web.logged_in()
    session = web.session(browser)

    steps = (*answer.history, answer)
    texts = (
        [step.text for step in steps] + [str(step.headers) for step in steps] + [step.url for step in steps]
    )
    assert not any(session in text or quote(session, safe="") in text for text in texts)
    held = {str(one.value).strip('"') for one in browser.cookies}
    held |= {value for step in steps for _, value in parse_qsl(urlsplit(step.url).query)}
    for text in held:
        with pytest.raises(InvalidToken):
            web.login.principal(text)


def test_a_session_is_valid_in_every_process_until_the_logout(web: Web, place: LoginPlace) -> None:
    browser, _ = web.logged_in()

    with process(place, web.core) as another:
        cookies = {COOKIE: cookie(browser)}
        answer = requests.get(f"{another.url}/v1", cookies=cookies, timeout=SECONDS)
        assert answer.json()["caller"]["name"] == place.person.name
        browser.post(f"{web.url}/logout", headers={"Sec-Fetch-Site": "same-origin"}, timeout=SECONDS)
        assert requests.get(f"{another.url}/v1", cookies=cookies, timeout=SECONDS).status_code == 401


def test_an_invented_session_is_nobodys(web: Web) -> None:
    prefix = web.session(web.logged_in()[0]).partition(":")[0]
    name = web.place.person.name
    invented = (
        "",
        ":",
        f"{prefix}:",
        f"{prefix}:{name}",
        name,
        "a:b",
        "x" * 5000,
        "\x00:\n",
        "\u00e9:\u00df",
    )

    for text in invented:
        with pytest.raises(InvalidToken):
            web.login.principal(text)


def test_a_changed_session_is_nobodys(web: Web) -> None:
    session = web.session(web.logged_in()[0])
    start = session.index(":") + 1

    assert web.login.principal(session).name == web.place.person.name
    for position in range(start, len(session) - 1, max(1, (len(session) - start) // 20)):
        letter = "A" if session[position] != "A" else "B"
        with pytest.raises(InvalidToken):
            web.login.principal(f"{session[:position]}{letter}{session[position + 1 :]}")


def test_many_requests_at_once_are_answered_with_the_same_rights(web: Web) -> None:
    session = web.session(web.logged_in()[0])

    with ThreadPoolExecutor(8) as threads:
        answers: list[Principal] = list(threads.map(web.login.principal, [session] * 64))

    assert {(one.name, one.role, one.collections) for one in answers} == {
        (web.place.person.name, web.place.person.role, web.place.person.collections)
    }


def test_somebody_without_rights_is_not_logged_in_and_is_told(web: Web) -> None:
    browser = requests.Session()

    answer = web.place.stranger(browser, web.button())

    assert 400 <= answer.status_code < 500, answer.text
    assert 'role="alert"' in answer.text
    assert web.get(browser).status_code == 401


def test_the_addresses_of_a_login_log_nobody_else_in(web: Web) -> None:
    _, answer = web.logged_in()
    victim = requests.Session()

    for step in (*answer.history, answer):
        address = urlsplit(step.url)
        if step.url.startswith(web.url) and address.path != web.login.path:
            victim.get(step.url, timeout=SECONDS, allow_redirects=False)

    assert web.get(victim).status_code == 401


def test_rights_that_are_withdrawn_are_lost_soon(web: Web, place: LoginPlace) -> None:
    browser, _ = web.logged_in()

    with place.withdrawn():
        deadline = time.monotonic() + SOON
        while (status := web.get(browser).status_code) == 200 and time.monotonic() < deadline:
            time.sleep(0.5)
        assert status == 401
        again = requests.Session()
        assert place.log_in(again, web.button()).status_code >= 400
        assert web.get(again).status_code == 401


def test_a_provider_that_is_away_is_said_to_be_and_logs_nobody_out(web: Web, place: LoginPlace) -> None:
    browser, _ = web.logged_in()

    with place.away():
        newcomer = requests.Session()
        answer = newcomer.get(web.button(), timeout=SECONDS)
        still = web.get(browser).status_code

        assert answer.status_code == 503, answer.text
        assert web.get(newcomer).status_code == 401
        assert still in (200, 503)
    assert web.caller(browser) == web.expected
