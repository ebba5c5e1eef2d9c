"""A client that sends wrong tokens is kept out for a while, and nobody else is."""

from collections.abc import Iterator

import pytest
import requests

from entrypoints.web.limits import WrongTokens
from entrypoints.web.server import server
from operations.tokens import PREFIX
from pipeline.errors import UsageRefused
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support.web import Web, serving

LIMIT = 3
WRONG = f"{PREFIX}{'a' * 38}"


@pytest.fixture(scope="module")
def serving_web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings, proxies="127.0.0.1") as running:
        yield running


@pytest.fixture
def web(serving_web: Web) -> Web:
    vars(serving_web.context)["wrong_tokens"] = WrongTokens(LIMIT)
    return serving_web


def ask(web: Web, token: str, client: str) -> requests.Response:
    """As a reverse proxy on this machine sends a request of this client."""
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": client}
    return web.anybody.get("/v1", headers=headers)


def log_in(web: Web, token: str, client: str) -> requests.Response:
    headers = {"X-Forwarded-For": client, "Sec-Fetch-Site": "same-origin"}
    return web.anybody.request(
        "POST", "/login", data={"token": token}, headers=headers, allow_redirects=False
    )


def test_an_address_that_sends_wrong_tokens_has_to_wait(web: Web) -> None:
    refused = [ask(web, WRONG, "198.51.100.7").status_code for _ in range(LIMIT)]
    limited = ask(web, WRONG, "198.51.100.7")

    assert refused == [401] * LIMIT
    assert (limited.status_code, limited.json()["code"]) == (429, "too-many-wrong-tokens")
    assert 1 <= int(limited.headers["Retry-After"]) <= 60
    assert "198.51.100.7 has sent 3 wrong tokens" in limited.json()["detail"]


def test_a_right_token_that_is_new_here_waits_behind_that_address_alone(web: Web) -> None:
    token = web.caller(Role.VIEWER, name="new").token
    for _ in range(LIMIT):
        ask(web, WRONG, "198.51.100.7")

    assert ask(web, token, "198.51.100.7").status_code == 429
    assert ask(web, token, "198.51.100.8").status_code == 200


def test_who_is_at_work_behind_the_same_proxy_is_not_kept_out(web: Web) -> None:
    token = web.caller(Role.VIEWER, name="working").token
    assert ask(web, token, "198.51.100.7").status_code == 200

    for _ in range(LIMIT):
        ask(web, WRONG, "198.51.100.7")

    assert ask(web, token, "198.51.100.7").status_code == 200


def test_the_login_form_and_the_merritt_form_count_too(web: Web) -> None:
    assert log_in(web, WRONG, "198.51.100.7").status_code == 401
    cookie = {"Cookie": f"arkline={WRONG}", "X-Forwarded-For": "198.51.100.7"}
    assert web.anybody.get("/v1", headers=cookie).status_code == 401
    merritt = web.anybody.request(
        "POST", "/poster/submit", auth=("someone", WRONG), headers={"X-Forwarded-For": "198.51.100.7"}
    )
    assert merritt.status_code == 401

    limited = log_in(web, WRONG, "198.51.100.7")

    assert limited.status_code == 429
    assert int(limited.headers["Retry-After"]) >= 1
    assert "wrong tokens in a minute" in limited.text
    assert "<form" in limited.text


def test_all_addresses_of_an_ipv6_network_are_one_client(web: Web) -> None:
    for number in range(LIMIT):
        ask(web, WRONG, f"2001:db8::{number}")

    assert ask(web, WRONG, "2001:db8::ffff").status_code == 429
    assert ask(web, WRONG, "2001:db8:0:1::1").status_code == 401


def test_without_proxies_a_header_makes_nobody_another_client(settings: Settings) -> None:
    with serving(settings) as web:
        vars(web.context)["wrong_tokens"] = WrongTokens(LIMIT)
        for number in range(LIMIT):
            assert ask(web, WRONG, f"198.51.100.{number}").status_code == 401

        assert ask(web, WRONG, "198.51.100.200").status_code == 429


def test_only_the_names_of_the_server_are_believed(settings: Settings) -> None:
    with serving(settings, hosts="Ingest.example.org, [::1]") as web:

        def status(host: str, path: str = "/login") -> int:
            return web.anybody.get(path, headers={"Host": host}).status_code

        assert status("ingest.example.org") == status("INGEST.example.org:8080") == status("[::1]:80") == 200
        assert (
            status("evil.example") == status("ingest.example.org.evil.example") == status("127.0.0.1") == 421
        )
        assert status("10.1.2.3:8080", "/health/live") == 200


@pytest.mark.parametrize("proxies", ["*", "proxy.example.org", "10.0.0.1/8"])
def test_proxies_that_are_no_networks_are_refused(web: Web, proxies: str) -> None:
    with pytest.raises(UsageRefused, match="ARKLINE_WEB_PROXIES"):
        server(web.context.board, "127.0.0.1", 0, lambda _: None, proxies)  # type: ignore[arg-type]
