"""Login of the pages at an OpenID provider: the real flow over HTTP, with signed tokens."""

import html
import json
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import requests

from entrypoints.web.limits import WRONG_TOKENS_PER_MINUTE, WrongTokens
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.records import now
from pipeline.settings import Settings
from plugins.oidc import login as oidc_login
from plugins.oidc import provider as oidc_provider
from plugins.oidc.login import read_groups
from plugins.oidc.provider import LoginRefused
from plugins.oidc.settings import OidcSettings
from tests.servers.oidc import CLIENT, SECRET, Provider, new_key, providing
from tests.support.fleet import set_variables
from tests.support.machine import Machine
from tests.support.web import OWN_FORM, Web, serving

GROUPS = """
archivists: {role: operator}
press: {role: depositor, collections: [demo]}
"""
SECONDS = 30


@pytest.fixture(scope="module")
def site(
    module_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Web, Provider]]:
    with providing() as provider, pytest.MonkeyPatch.context() as patch:
        set_variables(patch, provider.settings(tmp_path_factory.mktemp("oidc"), GROUPS))
        with serving(module_settings) as web:
            yield web, provider


@pytest.fixture
def web(site: tuple[Web, Provider]) -> Web:
    # refusals of one test count in no other one
    vars(site[0].context)["wrong_tokens"] = WrongTokens(WRONG_TOKENS_PER_MINUTE)
    return site[0]


@pytest.fixture
def provider(site: tuple[Web, Provider]) -> Provider:
    provider = site[1]
    provider.claims, provider.bodies = {}, {}
    provider.person = {"sub": "ann", "groups": ["staff", "archivists"]}
    return provider


class Browser(requests.Session):
    """Keeps cookies, and follows redirects as a browser does."""

    def __init__(self, web: Web) -> None:
        super().__init__()
        self.site = web.url

    def log_in(self, next_page: str = "/") -> requests.Response:
        """From the button to the answer after the provider's."""
        return self.get(f"{self.site}/login/oidc", params={"next": next_page}, timeout=SECONDS)

    def page(self, path: str = "/") -> requests.Response:
        return self.get(f"{self.site}{path}", timeout=SECONDS, allow_redirects=False)


def refusal(answer: requests.Response) -> str:
    """The message of the login page."""
    assert answer.status_code == 403, answer.text
    message = re.search(r'role="alert"><p>(.*?)</p>', answer.text, re.DOTALL)
    assert message is not None, answer.text
    return html.unescape(message[1])


def test_a_person_logs_in_at_the_provider_and_comes_to_the_page_that_was_asked_for(
    web: Web, provider: Provider
) -> None:
    browser = Browser(web)
    login = html.unescape(browser.page("/login?next=/jobs?state=failed").text)
    assert 'href="/login/oidc?next=%2Fjobs%3Fstate%3Dfailed"' in login, login

    answer = browser.log_in("/jobs?state=failed")

    assert answer.status_code == 200, answer.text
    assert '<meta http-equiv="refresh" content="0; url=/jobs?state=failed">' in answer.text
    cookie = answer.headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "oidc:ann" in browser.page("/jobs?state=failed").text
    asked = provider.requests[-1]
    assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")


def test_a_group_gives_its_role_and_its_collections(web: Web, provider: Provider) -> None:
    provider.person = {"sub": "eve", "groups": "press"}
    browser = Browser(web)
    browser.log_in()

    me = browser.page("/v1").json()["caller"]
    refused = browser.page("/fleet")

    assert (me["name"], me["role"], me["collections"]) == ("oidc:eve", "depositor", ["demo"])
    assert refused.status_code == 403


def test_a_person_of_the_provider_logs_a_program_in_for_as_long_as_her_login_lasts(
    web: Web, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_login, "GROUPS_SECONDS", 0.0)
    provider.person = {"sub": "eve", "groups": "press"}
    machine, browser = Machine(tmp_path), Browser(web)
    answers: list[requests.Response] = []

    def allow(code: str) -> None:
        browser.log_in(f"/login/device?code={code}")
        form = {"code": code, "answer": "yes"}
        answers.append(browser.post(f"{web.url}/login/device", data=form, headers=OWN_FORM, timeout=SECONDS))

    done = machine.log_in(web.url, allow)
    me = machine.run("whoami", "--json").json()
    file = OidcSettings().oidc_groups
    assert file is not None
    try:
        file.write_text("archivists: {role: operator}\n")
        gone = machine.run("whoami")
    finally:
        file.write_text(GROUPS)
        browser.page("/v1")  # it is read again

    assert done.code == 0, answers[-1].text
    assert (me["name"], me["role"], me["collections"]) == ("oidc:eve", "depositor", ["demo"])
    assert datetime.fromisoformat(me["expires"]) - now() < timedelta(hours=12)
    assert gone.code == 2
    assert "the rights of your group have changed" in gone.err


@pytest.mark.parametrize("groups", [{"archivists": 1}, [["archivists"]], [{"archivists": 1}], 1, None, True])
def test_groups_are_a_text_or_a_list_of_texts(web: Web, provider: Provider, groups: object) -> None:
    provider.person = {"sub": "eve", "groups": groups}

    assert "none of your groups has rights here" in refusal(Browser(web).log_in())


def test_a_changed_file_of_groups_changes_the_rights_of_who_is_logged_in(
    web: Web, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_login, "GROUPS_SECONDS", 0.0)
    file = OidcSettings().oidc_groups
    assert file is not None
    browser = Browser(web)
    browser.log_in()
    try:
        file.write_text("archivists: {role: viewer}\n")
        assert browser.page("/v1").json()["caller"]["role"] == "viewer"
        file.write_text("archivists: {role:")
        broken = browser.page("/v1")
        file.write_text("press: {role: viewer}\n")
        gone = browser.page("/v1").status_code
    finally:
        file.write_text(GROUPS)
        browser.page("/v1")  # it is read again

    assert (broken.status_code, str(file) in broken.text, gone) == (503, False, 401)


def test_a_new_secret_of_the_client_ends_the_logins(
    web: Web, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(web)
    browser.log_in()
    monkeypatch.setenv("ARKLINE_OIDC_CLIENT_SECRET", "another secret of the client")
    with serving(web.context.settings) as restarted:
        cookie = {"arkline": browser.cookies["arkline"]}
        assert requests.get(f"{restarted.url}/v1", cookies=cookie, timeout=SECONDS).status_code == 401


def test_a_logout_ends_the_login(web: Web, provider: Provider) -> None:
    browser = Browser(web)
    browser.log_in()
    assert browser.page().status_code == 200

    browser.post(f"{web.url}/logout", headers={"Sec-Fetch-Site": "same-origin"}, timeout=SECONDS)

    assert browser.page().headers["Location"].startswith("/login")


def test_a_session_is_no_token_of_the_api(web: Web, provider: Provider) -> None:
    browser = Browser(web)
    browser.log_in()
    [session] = [cookie.value for cookie in browser.cookies if cookie.name == "arkline"]

    bearer = {"Authorization": f"Bearer {str(session).strip(chr(34))}"}

    assert requests.get(f"{web.url}/v1", headers=bearer, timeout=SECONDS).status_code == 401


def test_a_changed_session_is_refused(web: Web, provider: Provider) -> None:
    browser = Browser(web)
    browser.log_in()
    [cookie] = [cookie for cookie in browser.cookies if cookie.name == "arkline"]
    value = str(cookie.value)

    changed = {"Cookie": f"arkline={value[:-4]}{'BBBB' if value.endswith('AAAA') else 'AAAA'}"}

    assert requests.get(f"{web.url}/v1", headers=changed, timeout=SECONDS).status_code == 401


PAST = int(time.time()) - 7200
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another audience": ({"aud": "another-client"}, "its aud is missing or wrong"),
    "two audiences without a party": ({"aud": [CLIENT, "another-client"]}, "its azp is wrong"),
    "another nonce": ({"nonce": "of another login"}, "its nonce is missing or wrong"),
    "no nonce": ({"nonce": None}, "its nonce is missing or wrong"),
    "another issuer": ({"iss": "https://login.example.org"}, "its iss is missing or wrong"),
    "expired": ({"iat": PAST, "exp": PAST + 300}, "has expired"),
    "without an end": ({"exp": None}, "its exp is missing or wrong"),
    "no known group": ({"groups": ["visitors"]}, "none of your groups has rights here"),
    "no group": ({"groups": None}, "none of your groups has rights here"),
    "an unusable name": ({"sub": "ann\n<b>"}, "no name that can be used here"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_token_that_is_not_right_logs_nobody_in_and_the_page_says_why(
    web: Web, provider: Provider, case: str
) -> None:
    provider.claims, message = WRONG[case]
    browser = Browser(web)

    assert message in refusal(browser.log_in())

    assert browser.page().headers["Location"].startswith("/login")


def test_a_token_that_another_key_signed_is_refused(web: Web, provider: Provider) -> None:
    right = provider.key
    provider.published, provider.key = [right], new_key("first")
    try:
        assert "not signed by one of its keys" in refusal(Browser(web).log_in())
    finally:
        provider.published, provider.key = [], right


def test_a_token_that_is_too_long_is_refused_and_the_page_says_why(web: Web, provider: Provider) -> None:
    provider.person = {"sub": "ann", "groups": ["archivists", "x" * 500_000]}

    assert "ID token is too long: have the provider name fewer" in refusal(Browser(web).log_in())


def drops() -> Iterator[bytes]:
    while True:
        time.sleep(0.05)
        yield b" "


@pytest.mark.parametrize(
    "body",
    [repeat(b" " * 65_536), drops(), [b"[" * 200_000], [b"1" * 5000], [b'{"a": "\xff"}']],
    ids=["endless", "drops", "deep", "digits", "bytes"],
)
def test_an_answer_of_the_provider_without_an_end_or_without_json_is_given_up(
    web: Web, provider: Provider, body: Iterable[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_provider, "TIMEOUT", 1.0)
    provider.bodies = {"/token": body}

    answer = Browser(web).log_in()

    assert (answer.status_code, "the OpenID provider" in html.unescape(answer.text)) == (503, True)


BROKEN_KEYS: tuple[object, ...] = (
    5,
    {"kty": ["RSA"]},
    {"kty": "RSA", "n": "!", "e": "AQAB"},
    {"kty": "EC", "crv": "of next year", "x": "AA", "y": "AA"},
    {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
)


def keys_of(provider: Provider, *listed: object) -> None:
    """Have a new client read these keys, and then a token without a signature."""
    provider.bodies = {
        "/keys": [json.dumps({"keys": listed}).encode()],
        "/token": [b'{"id_token": "a.b.c"}'],
    }
    client = oidc_provider.Provider(provider.issuer, CLIENT, SECRET)
    client.claims("code", "verifier", "redirect", "nonce")


def test_a_key_that_cannot_be_used_leaves_the_others_usable(provider: Provider) -> None:
    with pytest.raises(LoginRefused, match="not signed by one of its keys"):
        keys_of(provider, *BROKEN_KEYS, provider.key.as_dict(private=False))


@pytest.mark.parametrize("key", BROKEN_KEYS)
def test_a_provider_without_a_usable_key_is_named(provider: Provider, key: object) -> None:
    with pytest.raises(ServiceUnreachable, match=r"has no key at .*/keys that can be used"):
        keys_of(provider, key)


def test_an_answer_to_another_login_is_refused(web: Web, provider: Provider) -> None:
    victim, attacker = Browser(web), Browser(web)
    start = attacker.get(f"{web.url}/login/oidc", timeout=SECONDS, allow_redirects=False)
    answer = attacker.get(start.headers["Location"], timeout=SECONDS, allow_redirects=False)
    victim.get(f"{web.url}/login/oidc", timeout=SECONDS, allow_redirects=False)

    assert "of another login" in refusal(victim.get(answer.headers["Location"], timeout=SECONDS))
    assert "was not started here" in refusal(Browser(web).get(answer.headers["Location"], timeout=SECONDS))


@pytest.mark.parametrize("target", ["//example.org/", "/\t/example.org", "/\\example.org"])
def test_the_login_leads_to_no_other_site(web: Web, provider: Provider, target: str) -> None:
    answer = Browser(web).log_in(target)

    assert 'content="0; url=/"' in answer.text


@pytest.mark.parametrize(
    ("issuer", "says"),
    [("https://login.example.org", "ARKLINE_OIDC_GROUPS"), ("http://login.example.org", "https://")],
)
def test_incomplete_settings_end_the_start(
    settings: Settings, issuer: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKLINE_OIDC_ISSUER", issuer)
    monkeypatch.setenv("ARKLINE_OIDC_CLIENT_ID", "arkline")
    monkeypatch.delenv("ARKLINE_OIDC_GROUPS", raising=False)

    with pytest.raises(UsageRefused, match=says), serving(settings):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("archivists: {role: king}", "archivists.role"),
        ("archivists: {role: viewer, collections: []}", "archivists.collections"),
        ("archivists: {role: viewer, colections: [demo]}", "archivists.colections"),
        ("{}", "names no group"),
        ("- archivists", "the file"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_file_of_groups_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(text)

    with pytest.raises(UsageRefused, match=message):
        read_groups(file)
