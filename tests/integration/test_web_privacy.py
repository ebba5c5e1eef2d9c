"""What two depositors learn of one another by guessing: nothing."""

import time
from collections.abc import Iterator

import pytest
from structlog.typing import EventDict

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import planting
from tests.support.log_entries import log_entries
from tests.support.web import Caller, Web, serving
from zkstate.record import batches

DEPOSIT = {"profile": "demo", "payload_url": "https://example.org/harbour.txt"}


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        assert running.context.board.wait_filled(30)
        yield running


@pytest.fixture(scope="module")
def dora(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="dora")


@pytest.fixture(scope="module")
def emil(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="emil")


def test_two_depositors_use_one_idempotency_key_without_learning_of_it(
    web: Web, dora: Caller, emil: Caller
) -> None:
    key = {"Idempotency-Key": "2026-11-23"}
    first = dora.post("/v1/batches", DEPOSIT, headers=key)

    second = emil.post("/v1/batches", {**DEPOSIT, "what": "another"}, headers=key)
    tried = emil.post("/v1/batches?dry_run=true", {**DEPOSIT, "what": "another"}, headers=key)

    assert (first.status_code, second.status_code) == (201, 201)
    assert "Idempotency-Replayed" not in second.headers
    assert second.json()["bid"] != first.json()["bid"]
    assert first.json()["bid"] not in second.text + tried.text
    bids = [answer.json()["bid"] for answer in (first, second)]
    owners = [batches.load(web.context.session, bid).submission.owner for bid in bids]
    assert owners == ["token:dora", "token:emil"]


def test_a_guessed_etag_tells_nothing_of_anothers_job(web: Web, dora: Caller, emil: Caller) -> None:
    job = planting.owned_job(web.context.session, "token:dora")
    etag = dora.get(f"/v1/jobs/{job.jid}").headers["ETag"]
    absent = emil.get("/v1/jobs/jid9999999999", headers={"If-None-Match": etag})

    answers = [emil.get(f"/v1/jobs/{job.jid}", headers={"If-None-Match": guess}) for guess in (etag, "*")]

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (404, absent.json()["code"])
        assert "ETag" not in answer.headers
        assert answer.json()["title"] == absent.json()["title"]
        assert answer.json()["detail"].replace(job.jid, "") == absent.json()["detail"].replace(
            "jid9999999999", ""
        )


@pytest.fixture
def request_log() -> Iterator[list[EventDict]]:
    with log_entries() as entries:
        yield entries


def test_a_request_is_logged_with_its_id(dora: Caller, request_log: list[EventDict]) -> None:
    assert dora.get("/v1/batches", headers={"X-Request-ID": "sought.17"}).status_code == 200

    deadline = time.monotonic() + 30
    while not any(line.get("request_id") == "sought.17" for line in request_log):
        assert time.monotonic() < deadline, request_log
        time.sleep(0.05)  # the line is written after the answer

    assert [line["path"] for line in request_log if line.get("request_id") == "sought.17"] == ["/v1/batches"]
