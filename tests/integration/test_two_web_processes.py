"""Two web processes behind one address: what one has begun, the other one finishes."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import requests

from operations.site import Site
from operations.tokens import hash_of
from operations.verbs.bulk import make_plan, read_plan
from pipeline import codes
from pipeline.inventory.tokens import LOGINS_OF_ONE, LoginEntry, insert_login, login_with_hash
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.support import planting
from tests.support.errors import raises_code
from tests.support.operators import ANN
from tests.support.web import OWN_FORM, Caller, Web, serving_board
from zkstate.connection.session import Session
from zkstate.record import jobs


@pytest.fixture(scope="module")
def first(module_settings: Settings) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def second(module_settings: Settings) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def session(first: Web) -> Session:
    return first.context.session


def planned(caller: Caller, *jids: str) -> str:
    answer = caller.post("/v1/bulk/hold/dry-run", {"select": {"ids": jids}})
    assert answer.status_code == 200, answer.text
    token = answer.json()["token"]
    assert isinstance(token, str)
    return token


def test_the_other_process_does_exactly_what_the_dry_run_showed(
    first: Web, second: Web, session: Session
) -> None:
    _, (stays, moves) = planting.split_batch(session, 2)
    caller = first.caller(Role.OPERATOR, name="olga")
    token = planned(caller, stays, moves)
    planting.apply_event(session, jobs.load(session, moves), Event.FAIL)

    answer = Caller(second.url, caller.token).post("/v1/bulk/hold", {"token": token})

    assert answer.status_code == 200, answer.text
    receipt = answer.json()
    assert [one["id"] for one in receipt["done"]] == [stays]
    assert [one["id"] for one in receipt["moved"]] == [moves]
    assert jobs.load(session, stays).status.status is JobState.HELD


def test_a_token_that_is_used_again_changes_nothing(first: Web, second: Web, session: Session) -> None:
    jid = planting.one_job(session).jid
    caller = first.caller(Role.OPERATOR, name="otto")
    token = planned(caller, jid)
    assert caller.post("/v1/bulk/hold", {"token": token}).json()["done"]
    assert caller.post(f"/v1/jobs/{jid}/release", {}).status_code == 200

    again = Caller(second.url, caller.token).post("/v1/bulk/hold", {"token": token}).json()

    assert again["done"] == []
    assert [one["id"] for one in again["moved"]] == [jid]


def test_a_token_gives_nobody_else_a_right(first: Web, session: Session) -> None:
    token = planned(first.caller(Role.OPERATOR, name="oona"), planting.one_job(session).jid)

    for other, status in ((Role.OPERATOR, 404), (Role.VIEWER, 403)):
        answer = first.caller(other, name=f"other-{other}").post("/v1/bulk/hold", {"token": token})
        assert answer.status_code == status


@pytest.mark.parametrize("spoil", [lambda _: "", lambda token: token[: len(token) // 2], lambda _: "é€"])
def test_a_damaged_token_is_of_no_dry_run(first: Web, session: Session, spoil: Callable[[str], str]) -> None:
    site = Site(first.context.settings, session)
    plan = make_plan(site, ANN, Event.HOLD, [planting.one_job(session).jid])
    with raises_code(codes.NO_SUCH_PLAN, match="dry run"):
        read_plan(ANN, Event.HOLD, spoil(plan.token))


def test_a_token_that_is_too_old_is_refused(
    first: Web, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(first.context.settings, session)
    monkeypatch.setattr("operations.verbs.bulk.PLAN_SECONDS", -1.0)
    plan = make_plan(site, ANN, Event.HOLD, [planting.one_job(session).jid])
    with raises_code(codes.NO_SUCH_PLAN, match="older than"):
        read_plan(ANN, Event.HOLD, plan.token)


def test_the_page_of_the_other_process_shows_the_notice_once(
    first: Web, second: Web, session: Session
) -> None:
    jid = planting.one_job(session).jid
    browser = requests.Session()
    token = first.caller(Role.OPERATOR, name="orla").token
    browser.post(f"{first.url}/login", data={"token": token, "next": "/"}, headers=OWN_FORM, timeout=30)
    form = {"act": "hold", "target": jid, "reason": "ü" * 3000, "back": f"/jobs/{jid}"}
    sent = browser.post(f"{first.url}/act", data=form, headers=OWN_FORM, timeout=30, allow_redirects=False)
    assert sent.headers["Location"] == f"/jobs/{jid}"

    once, again = (browser.get(f"{second.url}/jobs/{jid}", timeout=30).text for _ in range(2))
    assert f"{jid} was pending and is now held" in once
    assert f"{jid} was pending and is now held" not in again


@pytest.mark.parametrize("cookie", ["", "!", "bm90IGpzb24=", "W10=", "eyJ0ZXh0IjogMX0=", "eyJiYWQiOiAxfQ=="])
def test_a_notice_that_is_none_is_not_shown(first: Web, cookie: str) -> None:
    browser = requests.Session()
    answer = browser.get(f"{first.url}/login", cookies={"notice": cookie}, timeout=30)
    assert answer.status_code == 200


def logged_in(web: Web, token: str) -> requests.Session:
    browser = requests.Session()
    browser.post(f"{web.url}/login", data={"token": token}, headers=OWN_FORM, timeout=30)
    return browser


def test_a_login_holds_at_the_other_process_and_no_copy_of_its_cookie_outlives_the_logout(
    first: Web, second: Web
) -> None:
    browser = logged_in(first, first.caller(Role.VIEWER, name="luna").token)
    copy = {"arkline": browser.cookies["arkline"]}
    assert requests.get(f"{second.url}/v1", cookies=copy, timeout=30).json()["caller"]["name"] == "luna"

    browser.post(f"{first.url}/logout", headers=OWN_FORM, timeout=30)

    for web in (first, second):
        assert requests.get(f"{web.url}/v1", cookies=copy, timeout=30).status_code == 401


def test_of_too_many_logins_of_one_token_the_oldest_end(first: Web) -> None:
    token = first.caller(Role.VIEWER, name="many").token
    oldest = logged_in(first, token)
    for _ in range(LOGINS_OF_ONE):
        first.context.logins.begin("many", hash_of(token))

    assert oldest.get(f"{first.url}/v1", timeout=30).status_code == 401


def test_a_login_that_is_over_is_refused_and_removed(first: Web) -> None:
    inventory, token = first.context.tokens(), first.caller(Role.VIEWER, name="over").token
    kept = f"login_{'o' * 43}"
    ended = now() - timedelta(seconds=1)
    insert_login(
        inventory, LoginEntry(hash=hash_of(kept), name="over", credential=hash_of(token), ends=ended)
    )
    assert requests.get(f"{first.url}/v1", cookies={"arkline": kept}, timeout=30).status_code == 401

    logged_in(first, token)

    assert login_with_hash(inventory, hash_of(kept)) is None
