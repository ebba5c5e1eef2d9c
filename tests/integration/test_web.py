import re
from collections.abc import Iterator

import pytest

from pipeline.principal import Role
from pipeline.settings import Settings
from tasks import stores
from tests.support import cli
from tests.support.web import OWN_FORM, Caller, Web, new_token, serving
from zkstate.connection.session import Session


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


def test_the_caller_learns_its_name_role_and_rights(web: Web) -> None:
    answer = web.caller(Role.DEPOSITOR, ["demo"], name="who").get("/v1")

    assert answer.status_code == 200
    caller = answer.json()["caller"]
    assert (caller["name"], caller["role"], caller["collections"]) == ("who", "depositor", ["demo"])
    assert caller["roles"] == ["viewer", "depositor"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_without_a_token_the_answer_is_401(web: Web) -> None:
    answer = web.anybody.get("/v1", headers={"X-Request-ID": "my-request.1"})

    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "not-authenticated"
    assert problem["request_id"] == answer.headers["X-Request-ID"] == "my-request.1"
    assert web.anybody.get(problem["type"]).json()["status"] == 401


@pytest.mark.parametrize("given", ["Bearer nonsense", "Basic YTpi", "Bearer"])
def test_a_wrong_token_is_answered_401(web: Web, given: str) -> None:
    answer = web.anybody.get("/v1", headers={"Authorization": given})

    assert answer.status_code == 401
    assert "nonsense" not in answer.text


def test_an_insane_request_id_is_replaced(web: Web) -> None:
    answer = web.anybody.get("/v1", headers={"X-Request-ID": "a b<c>"})

    assert answer.headers["X-Request-ID"] != "a b<c>"


def test_the_cookie_of_the_login_is_no_token(web: Web) -> None:
    token = web.caller(Role.VIEWER, name="cookie").token
    login = web.anybody.post("/login", data={"token": token}, headers=OWN_FORM, allow_redirects=False)
    kept = login.cookies["arkline"]

    assert token not in kept
    assert (
        web.anybody.get("/v1", headers={"Cookie": f"arkline={kept}"}).json()["caller"]["interface"] == "web"
    )
    assert web.anybody.get("/v1", headers={"Cookie": f"arkline={token}"}).status_code == 401
    assert web.anybody.get("/v1", headers={"Authorization": f"Bearer {kept}"}).status_code == 401


def test_health_needs_no_token(web: Web) -> None:
    assert web.anybody.get("/health/live").json() == {"live": True}
    assert web.anybody.get("/health/ready").json() == {"ready": True, "zookeeper": "connected"}


def test_a_token_is_created_used_and_revoked_by_the_command_line(settings: Settings) -> None:
    created = cli.run(settings, "token", "create", "scans", "--role", "viewer", "--json").json()

    with cli.start(settings, "web", "--port", "0", "--json") as process:
        assert process.stdout is not None
        url = "".join(process.stdout.readline() for _ in range(3)).split('"')[3]
        assert Caller(url, created["token"]).get("/v1").status_code == 200

    assert cli.run(settings, "token", "revoke", "scans").code == 0
    listed = cli.run(settings, "token", "list")
    assert "revoked" in listed.out
    assert created["token"] not in listed.out


def test_a_token_is_not_judged_while_the_inventory_is_away(settings: Settings, session: Session) -> None:
    stores.compare(session, settings)  # gives the three stores their deployment id
    before, token = (new_token(settings, name, Role.VIEWER) for name in ("before", "scans"))
    file, away = settings.data / "inventory.sqlite", settings.data / "away"

    for served_before in (True, False):
        with serving(settings) as web:
            caller = Caller(web.url, token)
            if served_before:
                assert Caller(web.url, before).get("/v1").status_code == 200
            file.rename(away)
            answer = caller.get("/v1")
            created = file.exists()
            away.rename(file)

            assert not created
            assert (answer.status_code, answer.json()["kind"]) == (503, "unreachable")
            assert str(file) in answer.json()["detail"]
            assert caller.get("/v1").status_code == 200


def test_the_first_token_of_a_new_site_is_refused_and_not_a_fault(settings: Settings) -> None:
    with serving(settings) as web:
        assert Caller(web.url, "ark_nonsense").get("/v1").status_code == 401


def test_requests_are_counted_by_route_and_a_stranger_adds_no_series(web: Web) -> None:
    scraper = web.caller(Role.VIEWER, name="counting")
    for path in ("/v1/jobs/jid0000000001", "/v1/jobs/jid0000000002", "/strange/1", "/strange/2"):
        scraper.get(path)

    text = scraper.get("/metrics").text

    counted = dict(re.findall(r"^arkline_http_requests_total\{(.+)\} (\S+)$", text, re.MULTILINE))
    assert counted['code="404",method="GET",route="/v1/jobs/{jid}"'] == "2.0"
    assert counted['code="404",method="unknown",route="unknown"'] == "2.0"
    assert "strange" not in text


def test_metrics_need_a_token_for_all_collections(web: Web) -> None:
    answer = web.caller(Role.VIEWER, name="scrape").get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'arkline_jobs{state="pending"}' in answer.text
    assert web.anybody.get("/metrics").status_code == 401
    assert web.caller(Role.OPERATOR, ["demo"], name="one").get("/metrics").status_code == 403


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_a_body_that_is_no_file_has_a_small_limit(web: Web, framing: str) -> None:
    body = b'{"profile": "demo", "payload_url": "' + b"x" * (2 << 20) + b'"}'
    data = body if framing == "declared" else iter([body[: 1 << 20], body[1 << 20 :]])
    depositor = web.caller(Role.DEPOSITOR, name=f"large-{framing}")

    answer = depositor.request("POST", "/v1/batches", data=data, headers={"Content-Type": "application/json"})

    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
