"""`arkline login`: a program gets a token because a person says yes at a page, served by any web process."""

import json
import re
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from operations import device_login
from operations.device_login import TOKEN_DAYS
from operations.tokens import hash_of
from pipeline.inventory.tokens import LOGINS_OF_ONE, TokenEntry, all_tokens, insert_token, token_with_hash
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from tests.support.log_entries import log_entries
from tests.support.machine import Machine
from tests.support.web import OWN_FORM, Caller, Web, new_token, serving_board
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import device_logins

PAGE = "/login/device"


@pytest.fixture(scope="module")
def first(module_settings: Settings) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def second(module_settings: Settings) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _in_no_hurry(monkeypatch: pytest.MonkeyPatch, first: Web, second: Web) -> None:
    """Every test begins with unused limits and short pauses."""
    monkeypatch.setattr(device_login, "INTERVAL", 0)
    monkeypatch.setattr("operations.tokens.REMEMBERED_SECONDS", 0.0)
    for web in (first, second):
        for limit in ("login_starts", "login_polls", "login_codes", "wrong_tokens"):
            window = getattr(web.context, limit)
            window._counts.clear()


class Browser:
    """A browser in which a person has logged in with a token."""

    def __init__(self, web: Web, token: str) -> None:
        self.url, self._session = web.url, requests.Session()
        self._session.post(f"{web.url}/login", data={"token": token}, headers=OWN_FORM, timeout=30)

    def look(self, code: str) -> requests.Response:
        return self._session.get(f"{self.url}{PAGE}", params={"code": code}, timeout=30)

    def answer(self, code: str, answer: str, **headers: str) -> requests.Response:
        form = {"code": code, "answer": answer}
        sent = headers or OWN_FORM
        return self._session.post(f"{self.url}{PAGE}", data=form, headers=sent, timeout=30)

    def allow(self, code: str) -> requests.Response:
        return self.answer(code, "yes")

    def log_out(self) -> None:
        self._session.post(f"{self.url}/logout", headers=OWN_FORM, timeout=30)


def started(web: Web, host: str = "workstation") -> dict[str, str]:
    answer = web.anybody.post("/v1/login/device", {"host": host})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def asked(web: Web, login: dict[str, str]) -> dict[str, str | None]:
    answer = web.anybody.post("/v1/login/token", {"device_code": login["device_code"]})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def allowed(web: Web, parent: str) -> str:
    login = started(web)
    assert Browser(web, parent).answer(login["user_code"], "yes").status_code == 200
    token = asked(web, login)["access_token"]
    assert token is not None
    return token


def person(web: Web, name: str, role: Role = Role.DEPOSITOR, *collections: str) -> str:
    return new_token(web.context.settings, name, role, collections or None)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "config")


def test_a_further_login_of_a_person_ends_the_oldest(first: Web) -> None:
    inventory = first.context.site.inventory()
    person(first, "xenia")
    entries = [
        TokenEntry(
            name=f"xenia on host {number}",
            hash=hash_of(f"xenia {number}"),
            role=Role.VIEWER,
            created=now() + timedelta(seconds=number),
            expires=now() + timedelta(days=1),
            person="xenia",
            credential="basis",
        )
        for number in range(LOGINS_OF_ONE + 1)
    ]
    assert all(insert_token(inventory, entry) for entry in entries)

    names = {entry.name for entry in all_tokens(inventory) if entry.name.startswith("xenia")}
    assert names == {"xenia", *(entry.name for entry in entries[1:])}


def test_a_person_logs_a_program_in_at_another_web_process(first: Web, second: Web, machine: Machine) -> None:
    anna = Browser(second, person(first, "anna", Role.DEPOSITOR, "demo"))

    done = machine.log_in(first.url, anna.allow)

    assert done.code == 0, done.err
    assert re.search(r"name\s+anna\n\s*role\s+depositor\n\s*collections\s+demo", done.out)
    assert stat.S_IMODE(machine.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(machine.file.parent.stat().st_mode) == 0o700
    assert [path.name for path in machine.file.parent.iterdir()] == ["logins.json"]
    me = machine.run("whoami", "--json").json()
    assert (me["url"], me["name"], me["role"], me["collections"]) == (
        first.url,
        "anna",
        "depositor",
        ["demo"],
    )
    assert str(machine.file) in me["source"]
    listed = first.caller(Role.ADMIN, name="adam").get("/v1/tokens").json()["tokens"]
    (own,) = [one for one in listed if one["person"] == "anna"]
    assert own["name"].startswith("anna on ")
    assert own["expires"][:10] == (now() + timedelta(days=TOKEN_DAYS)).date().isoformat()
    assert "credential" not in own


def test_the_variables_and_the_shell_of_a_stack_go_before_the_login(first: Web, machine: Machine) -> None:
    assert machine.log_in(first.url, Browser(first, person(first, "berta")).allow).code == 0
    other = person(first, "bruno", Role.VIEWER)

    variables = machine.run("whoami", "--json", ARKLINE_URL=first.url, ARKLINE_TOKEN=other).json()
    of_stack = machine.run("status", ARKLINE_ZK_HOSTS="127.0.0.1:1")

    assert (variables["name"], variables["source"]) == ("bruno", "ARKLINE_URL and ARKLINE_TOKEN")
    assert of_stack.code == 3
    assert "127.0.0.1:1" in of_stack.err


def test_a_refused_login_keeps_nothing(first: Web, machine: Machine) -> None:
    carl = Browser(first, person(first, "carl"))
    done = machine.log_in(first.url, lambda code: carl.answer(code, "no"))

    assert (done.code, done.out) == (2, "")
    assert "refused at the page" in done.err
    assert not machine.file.exists()


def test_a_second_login_asks_nobody_while_the_first_one_holds(first: Web, machine: Machine) -> None:
    assert machine.log_in(first.url, Browser(first, person(first, "dora")).allow).code == 0
    kept = machine.file.read_text()

    again = machine.run("login", f"{first.url}/")

    assert (again.code, again.err) == (0, "")
    assert machine.file.read_text() == kept


def test_a_logout_revokes_the_token_and_removes_it(first: Web, machine: Machine) -> None:
    parent = person(first, "emil")
    assert machine.log_in(first.url, Browser(first, parent).allow).code == 0
    token = json.loads(machine.file.read_text())["servers"][first.url]["token"]

    done = machine.run("logout")

    assert (done.code, done.out) == (0, f"Logged out from {first.url}.\n"), done.err
    assert token not in machine.file.read_text()
    assert Caller(first.url, token).get("/v1").status_code == 401
    assert Caller(first.url, parent).get("/v1").status_code == 200
    assert machine.run("logout").code == 2


def test_a_logout_from_a_site_that_is_away_removes_the_token_here(first: Web, machine: Machine) -> None:
    assert machine.log_in(first.url, Browser(first, person(first, "fred")).allow).code == 0
    gone = "http://127.0.0.1:1"
    machine.file.write_text(machine.file.read_text().replace(first.url, gone))

    asked = machine.run("jobs")
    done = machine.run("logout")

    assert (asked.code, done.code) == (3, 3)
    assert f"{gone} does not answer" in asked.err
    assert f"from the login in {machine.file}" in asked.err
    assert json.loads(machine.file.read_text()) == {"current": "", "servers": {}}


def test_an_answer_that_was_lost_is_given_again_and_to_nobody_else(first: Web, second: Web) -> None:
    login, other = started(first), started(second)
    assert asked(second, login)["error"] == "authorization_pending"
    Browser(first, person(first, "gina")).answer(login["user_code"], "yes")

    answers = [asked(first, login), asked(second, login), asked(second, login)]

    (token,) = {answer["access_token"] for answer in answers}
    assert token is not None
    assert Caller(second.url, token).get("/v1").json()["caller"]["name"] == "gina"
    assert asked(first, other)["error"] == "authorization_pending"
    assert asked(first, {"device_code": login["user_code"]})["error"] == "expired_token"


def test_the_token_ends_with_the_token_that_allowed_it_and_not_with_the_browser(first: Web) -> None:
    parent = person(first, "hugo")
    child = Caller(first.url, allowed(first, parent))
    grandchild = Caller(first.url, allowed(first, child.token))
    Browser(first, parent).log_out()
    assert (child.get("/v1").status_code, grandchild.get("/v1").status_code) == (200, 200)

    first.caller(Role.ADMIN, name="ada").post("/v1/tokens/hugo/revoke", {})

    assert [one.get("/v1").json().get("code") for one in (child, grandchild)] == ["invalid-token"] * 2


def test_the_token_can_be_revoked_by_its_name_alone(first: Web) -> None:
    parent = Caller(first.url, person(first, "inga"))
    child = Caller(first.url, allowed(first, parent.token))
    admin = first.caller(Role.ADMIN, name="alma")
    (name,) = [one["name"] for one in admin.get("/v1/tokens").json()["tokens"] if one["person"] == "inga"]

    assert admin.post(f"/v1/tokens/{name}/revoke", {}).status_code == 200

    assert (child.get("/v1").status_code, parent.get("/v1").status_code) == (401, 200)


def test_a_token_of_no_login_cannot_end_itself(first: Web) -> None:
    caller = first.caller(Role.OPERATOR, name="ivan")

    answer = caller.post("/v1/login/end", {})

    assert (answer.status_code, caller.get("/v1").status_code) == (422, 200)


def test_the_page_shows_who_asks_and_what_the_program_will_get(first: Web) -> None:
    login = started(first, "<b>lab</b> 7")
    page = Browser(first, person(first, "jana", Role.DEPOSITOR, "harbour", "demo")).look(login["user_code"])

    for text in (
        login["user_code"],
        "&lt;b&gt;lab&lt;/b&gt; 7",
        "127.0.0.1",
        "jana",
        "depositor",
        "demo, harbour",
    ):
        assert text in page.text
    assert login["verification_uri_complete"] == f"{first.url}{PAGE}?code={login['user_code']}"


def test_nobody_answers_without_a_login_or_from_another_site(first: Web) -> None:
    login = started(first)
    stranger = requests.get(f"{first.url}{PAGE}?code=x", timeout=30, allow_redirects=False)
    kurt = Browser(first, person(first, "kurt"))

    forged = kurt.answer(login["user_code"], "yes", **{"Sec-Fetch-Site": "cross-site"})

    assert stranger.headers["Location"].startswith("/login?next=%2Flogin%2Fdevice")
    assert forged.status_code == 403
    assert asked(first, login)["error"] == "authorization_pending"


def test_the_first_answer_is_final_and_may_be_repeated_after_a_crash(first: Web, session: Session) -> None:
    """A web process that dies after the answer was entered has made no token."""
    login = started(first)
    name = hash_of(login["device_code"])
    lena = Browser(first, person(first, "lena"))
    device_logins.answer(first.context.session, name, "lena", allowed=True)
    assert asked(first, login)["error"] == "authorization_pending"

    other = Browser(first, person(first, "lutz")).answer(login["user_code"], "no")
    change = lena.answer(login["user_code"], "no")
    assert ("lena has already answered" in other.text, other.status_code) == (True, 422)
    assert change.status_code == 422
    assert lena.answer(login["user_code"], "yes").status_code == 200
    assert lena.answer(login["user_code"], "yes").status_code == 200
    assert asked(first, login)["access_token"]


def test_a_program_that_asks_too_often_is_told_to_slow_down(first: Web) -> None:
    login, other = started(first), started(first)

    errors = [asked(first, login)["error"] for _ in range(21)]

    assert errors == ["authorization_pending"] * 20 + ["slow_down"]
    assert asked(first, other)["error"] == "authorization_pending"


def test_an_expired_login_cannot_be_answered(first: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_logins, "SECONDS", -1)
    login = started(first)

    answer = Browser(first, person(first, "mona")).answer(login["user_code"], "yes")

    assert (answer.status_code, asked(first, login)["error"]) == (404, "expired_token")


def test_scheduled_work_removes_old_logins_alone(first: Web) -> None:
    session = first.context.session
    name = hash_of(started(first)["device_code"])
    _, made = session.get(paths.device_login(name))

    device_logins.remove_old(session, made.ctime + device_logins.KEPT_MS)
    assert device_logins.find(session, name) is not None
    device_logins.remove_old(session, made.ctime + device_logins.KEPT_MS + 1)
    assert device_logins.find(session, name) is None


def test_strangers_cannot_fill_the_record(first: Web, second: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    device_logins.remove_old(first.context.session, float("inf"))
    monkeypatch.setattr(device_logins, "OF_ADDRESS", 3)
    for web in (first, second, first):
        started(web)

    refused = second.anybody.post("/v1/login/device", {"host": "x"})

    assert (refused.status_code, refused.json()["code"]) == (503, "too-many-logins")
    device_logins.remove_old(first.context.session, float("inf"))
    statuses = [second.anybody.post("/v1/login/device", {"host": ""}).status_code for _ in range(2)]
    assert statuses == [422, 422]


def test_starts_and_wrong_codes_are_limited(first: Web) -> None:
    nils = Browser(first, person(first, "nils"))

    tries = [nils.look("BCDF-GHJK").status_code for _ in range(11)]
    starts = [first.anybody.post("/v1/login/device", {"host": "x"}) for _ in range(21)]

    assert tries == [404] * 10 + [429]
    assert [one.status_code for one in starts] == [201] * 20 + [429]
    assert int(starts[-1].headers["Retry-After"]) > 0


def test_no_secret_is_stored(first: Web) -> None:
    parent = person(first, "olga")
    with log_entries() as entries:
        login = started(first)
        Browser(first, parent).answer(login["user_code"], "yes")
        token = asked(first, login)["access_token"]
    assert token is not None
    inventory = first.context.tokens()

    node, _ = first.context.session.get(paths.device_login(hash_of(login["device_code"])))
    row = token_with_hash(inventory, hash_of(token))
    inventory.database.close()
    stored = b"".join(path.read_bytes() for path in first.context.settings.data.glob("inventory.sqlite*"))
    logs = repr(entries)

    letters = login["user_code"].replace("-", "")
    assert row is not None
    assert "login of a program answered" in logs
    for secret in (token, login["device_code"], login["user_code"], letters):
        for place in (node.decode(), logs, repr(row), stored.decode(errors="replace")):
            assert secret not in place
