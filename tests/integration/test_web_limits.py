"""One caller at its worst: the web process still answers everybody else, and keeps its memory."""

import asyncio
import contextlib
import gc
import shutil
import socket
import tempfile
import threading
import time
import tracemalloc
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import requests
from starlette.requests import Request
from starlette.types import Message

from entrypoints.web import limits
from entrypoints.web.limits import SECONDS, THREADS, SlowWork, TooMany
from entrypoints.web.meanings import with_meanings
from entrypoints.web.middleware import OF_STRANGERS
from entrypoints.web.pages.one import explain
from entrypoints.web.pages.whole import WholeFleet
from entrypoints.web.receiving import FIELD
from entrypoints.web.routes.verbs import do
from operations import tokens, visibility
from operations.fleet import fleet
from operations.verbs import bulk as bulk_verbs
from operations.verbs import verbs
from operations.verbs.verbs import VerbResult
from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.inventory.tokens import revoke_token
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.manifests import BATCH, FILES, manifest
from tests.support.operators import ANN
from tests.support.polling import eventually
from tests.support.web import OWN_FORM, Caller, Web, parts_of_uploads, serving
from zkstate.record import jobs

T = TypeVar("T")

FLOOD = 45
"""More requests than the server has threads for ordinary ones."""


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def mallory(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="mallory")


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a host that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/m.checkm"


def _dry_run(caller: Caller, url: str, kind: str = "object-manifest") -> requests.Response:
    body = {"profile": "demo", "payload_url": url, "type": kind}
    return caller.post("/v1/batches?dry_run=true", body)


def _connection(web: Web) -> socket.socket:
    address = urlsplit(web.url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=30)


def _answer(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


async def _nothing() -> Message:
    """What the server has of a client that sends nothing more."""
    await asyncio.Event().wait()
    raise AssertionError


def _idle(web: Web) -> bool:
    return not web.context.slow_work.running


def test_dry_runs_of_a_silent_host_delay_nobody_else(web: Web, mallory: Caller, silent: str) -> None:
    honest = web.caller(Role.DEPOSITOR, ["demo"], name="honest")
    with ThreadPoolExecutor(FLOOD) as flood:
        sent = [flood.submit(_dry_run, mallory, silent) for _ in range(FLOOD)]
        refused = [eventually(lambda: next((one for one in sent if one.done()), None)).result()]
        began = time.monotonic()
        assert requests.get(f"{web.url}/health/live", timeout=10).status_code == 200
        assert honest.get("/v1/batches").status_code == 200
        assert requests.get(f"{web.url}/login", timeout=10).status_code == 200
        assert time.monotonic() - began < 10
        answers = [one.result() for one in sent]

    assert (refused[0].status_code, refused[0].json()["code"]) == (429, "already-working")
    assert int(refused[0].headers["Retry-After"]) > 0
    assert sorted({answer.status_code for answer in answers}) == [429, 503]
    eventually(lambda: _idle(web))


@pytest.mark.parametrize("path", ["/v1/queue", "/metrics"])
def test_many_questions_that_ask_the_workers_take_few_threads(web: Web, path: str) -> None:
    """No worker runs here, so that each question takes as long as workers may take to answer."""
    viewer = web.caller(Role.VIEWER, name=f"viewer-of-{path.rpartition('/')[2]}")
    with ThreadPoolExecutor(FLOOD) as flood:
        answers = list(flood.map(lambda _: viewer.get(path), range(FLOOD)))

    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} <= {200, 429, 503}
    assert refused, "no question waits for a thread that serves others"
    assert all(1 <= int(answer.headers["Retry-After"]) <= SECONDS for answer in refused)


def test_a_second_request_may_come_when_the_first_one_ends() -> None:
    """... whose time may be shorter or longer than usual."""
    work, free = SlowWork(seconds=20), threading.Event()
    request = Request({"type": "http"}, receive=_nothing)

    async def both() -> TooMany:
        first = asyncio.create_task(work.run(request, "ann", lambda _: free.wait(30), 300))
        await asyncio.sleep(0)
        with pytest.raises(TooMany) as refused:
            await work.run(request, "ann", lambda _: None)
        assert refused.value.code is codes.ALREADY_WORKING
        free.set()
        await first
        return refused.value

    assert 290 < asyncio.run(both()).retry_after <= 300


def test_a_place_is_free_again_if_the_system_gave_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    work, request = SlowWork(), Request({"type": "http"}, receive=_nothing)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # as Python does at the limit of processes

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ArklineError) as refused:
            asyncio.run(work.run(request, "ann", lambda _: None))

    assert refused.value.code is codes.NO_THREAD_FREE
    assert asyncio.run(work.run(request, "ann", lambda _: "done")) == "done"


@pytest.fixture
def taken(web: Web) -> Iterator[None]:
    """All places for slow work are taken."""
    free, request = threading.Event(), Request({"type": "http"}, receive=_nothing)

    async def take() -> None:
        work = web.context.slow_work
        await asyncio.gather(
            *(work.run(request, f"other{number}", lambda _: free.wait(60)) for number in range(THREADS))
        )

    holder = threading.Thread(target=asyncio.run, args=(take(),))
    holder.start()
    eventually(lambda: web.context.slow_work.running == THREADS)
    yield
    free.set()
    holder.join()


LONG_REQUESTS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("GET", "/v1/jobs/jid0000000001/premis", {}),
    ("GET", "/bulk?cause=any", {}),
    ("POST", "/v1/batches/bid0000000001/release", {}),
    ("POST", "/v1/batches/bid0000000001/delete", {"json": {"reason": "why"}}),
    ("POST", "/v1/batches/bid0000000001/cancel", {"json": {"reason": "why"}}),
    ("POST", "/v1/batches/bid0000000001/resume", {}),
    ("POST", "/v1/batches/bid0000000001/cancel/dry-run", {}),
    ("POST", "/v1/collections/demo/release", {}),
)


def test_what_takes_long_waits_for_no_thread_that_serves_others(web: Web, taken: None) -> None:
    operator = web.caller(Role.OPERATOR, name="waiting")

    answers = {
        (method, path): operator.request(method, path, **options).status_code
        for method, path, options in LONG_REQUESTS
    }

    assert set(answers.values()) == {503}, answers
    assert operator.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    "act", [{"act": "cancel", "target": "bid0000000001"}, {"act": "release-collection", "target": "demo"}]
)
def test_a_button_for_a_whole_batch_or_collection_takes_no_thread_that_serves_others(
    web: Web, taken: None, act: dict[str, str]
) -> None:
    operator = web.caller(Role.OPERATOR, name=f"pressing-{act['act']}")

    answer = operator.request(
        "POST", "/act", data={**act, "reason": "why"}, headers=OWN_FORM, allow_redirects=False
    )

    assert answer.status_code == 303
    assert b"requests that take long" in b64decode(answer.cookies["notice"].strip('"'))


def test_a_page_that_says_why_asks_no_workers(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """... also while nothing is known of them."""
    asked: list[str] = []
    monkeypatch.setattr(fleet, "ask_workers", lambda *_: asked.append("workers"))
    monkeypatch.setattr(fleet, "ask_broker", lambda *_: asked.append("broker"))
    whole = WholeFleet(web.context)
    monkeypatch.setattr(whole, "get", lambda: None)
    jid = planting.split_batch(web.context.session, 1)[1][0]

    facts = explain(web.context, whole, ANN, jobs.load(web.context.session, jid))

    assert facts.id == jid
    assert not asked


def test_a_bulk_verb_that_nobody_waits_for_acts_on_nothing_further(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = planting.split_batch(web.context.session, 40)[1]
    operator = web.caller(Role.OPERATOR, name="impatient")
    plan = operator.post("/v1/bulk/hold/dry-run", {"select": {"ids": ids}}).json()
    monkeypatch.setattr(do, "seconds", 0.0)
    act_on, answered = verbs.act, threading.Event()

    def act_and_wait(*values: Any, **options: Any) -> VerbResult:
        result = act_on(*values, **options)
        assert answered.wait(60)
        return result

    monkeypatch.setattr(bulk_verbs, "act", act_and_wait)

    answer = operator.post("/v1/bulk/hold", {"token": plan["token"]})

    answered.set()
    eventually(lambda: _idle(web))
    assert (answer.status_code, answer.json()["code"]) == (503, "took-too-long")
    held = [jid for jid in ids if jobs.load(web.context.session, jid).status.status is JobState.HELD]
    assert len(held) < len(ids)


def test_a_bulk_verb_stops_once_its_token_is_revoked(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = planting.split_batch(web.context.session, 3)[1]
    operator = web.caller(Role.OPERATOR, name="dismissed")
    plan = operator.post("/v1/bulk/hold/dry-run", {"select": {"ids": ids}}).json()
    monkeypatch.setattr(limits, "VALID_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    act_on = verbs.act

    def act_and_revoke(*values: Any, **options: Any) -> VerbResult:
        result = act_on(*values, **options)
        revoke_token(web.context.tokens(), "dismissed", "ann", now())
        return result

    monkeypatch.setattr(bulk_verbs, "act", act_and_revoke)
    receipt = operator.post("/v1/bulk/hold", {"token": plan["token"]})

    assert ([one["id"] for one in receipt.json()["done"]], receipt.json()["untried"]) == (ids[:1], 2)
    assert jobs.load(web.context.session, ids[1]).status.status is JobState.PENDING


def test_a_stopped_request_of_a_revoked_token_says_what_was_done(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = planting.split_batch(web.context.session, 2)[1]
    operator = web.caller(Role.OPERATOR, name="stopped")
    monkeypatch.setattr(limits, "VALID_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    act_on = verbs.act

    def act_and_revoke(*values: Any, **options: Any) -> VerbResult:
        revoke_token(web.context.tokens(), "stopped", "ann", now())
        return act_on(*values, **options)

    monkeypatch.setattr(bulk_verbs, "act", act_and_revoke)
    answer = operator.post("/v1/bulk/hold/dry-run", {"select": {"ids": ids}})

    assert (answer.status_code, answer.json()["code"]) == (401, "invalid-token")
    assert answer.json()["detail"].endswith("nothing was changed")


def test_a_long_request_of_a_revoked_token_is_refused(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = planting.split_batch(web.context.session, 2)[1]
    viewed = web.caller(Role.OPERATOR, name="revoked")
    monkeypatch.setattr(limits, "VALID_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    look = visibility.visible_job

    def look_and_revoke(*values: Any) -> object:
        revoke_token(web.context.tokens(), "revoked", "ann", now())
        return look(*values)

    monkeypatch.setattr("entrypoints.web.routes.verbs.visible_job", look_and_revoke)
    answer = viewed.post("/v1/bulk/hold/dry-run", {"select": {"ids": ids}})

    assert (answer.status_code, answer.json()["code"]) == (401, "invalid-token")


def test_a_dry_run_ends_when_its_client_has_left(web: Web, mallory: Caller, silent: str) -> None:
    with contextlib.suppress(requests.ReadTimeout):
        requests.post(
            f"{mallory.url}/v1/batches?dry_run=true",
            json={"profile": "demo", "payload_url": silent, "type": "object-manifest"},
            headers={"Authorization": f"Bearer {mallory.token}"},
            timeout=1,
        )

    began = time.monotonic()
    eventually(lambda: _idle(web))
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("kind", ["object-manifest", "batch-manifest"])
def test_a_dry_run_of_many_lines_is_refused_before_they_are_planned(
    mallory: Caller, source: HttpSource, kind: str
) -> None:
    profile = FILES if kind == "object-manifest" else BATCH
    rows = [f"http://h/{number}" for number in range(3000)]
    url = source.put("/many.checkm", manifest(*rows, profile=profile))

    answer = _dry_run(mallory, url, kind)

    assert (answer.status_code, answer.json()["code"]) == (422, "usage-refused")
    assert "2,000 lines" in answer.json()["detail"]


def test_a_request_with_two_statements_of_its_length_is_refused_and_the_connection_closed(web: Web) -> None:
    smuggled = b"GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n"
    with _connection(web) as connection:
        connection.sendall(
            b"POST /v1/batches HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + smuggled
        )
        answered = _answer(connection)

    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1") == 1


def test_the_body_of_a_stranger_is_not_read_whole(web: Web) -> None:
    sent = 0
    with _connection(web) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(
            b"POST /v1/batches HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer none\r\nContent-Type: application/json\r\n\r\n"
        )
        connection.sendall(b"%x\r\n" % OF_STRANGERS + b" " * OF_STRANGERS + b"\r\n")
        connection.sendall(b"1\r\n \r\n")  # and the rest never comes
        answered = connection.recv(1 << 16)
        sent += OF_STRANGERS

    assert answered.startswith(b"HTTP/1.1 401 ")


def test_what_arrives_is_counted_whatever_was_stated(web: Web, mallory: Caller) -> None:
    """... of a token as well: a body sent in chunks ends at the limit."""
    answer = mallory.request(
        "POST",
        "/v1/batches",
        data=iter([b" " * (1 << 16)] * 40),
        headers={"Content-Type": "application/json"},
    )

    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")


@pytest.mark.parametrize("path", ["/poster/submit", "/deposits"])
def test_a_field_of_a_form_is_small(mallory: Caller, path: str) -> None:
    answer = mallory.post(path, files={"what": (None, "x" * (FIELD + 1))})

    assert answer.status_code == 400


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector of cycles does not run: it may be late in a busy process too."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.parametrize("path", ["/poster/submit", "/deposits"])
def test_a_form_that_is_refused_leaves_nothing_in_memory(
    web: Web, mallory: Caller, path: str, no_collector: None
) -> None:
    large = {"what": (None, "x" * (1 << 20))}
    assert mallory.post(path, files=large).status_code == 400  # what is made once
    before, _ = tracemalloc.get_traced_memory()

    for _ in range(10):
        assert mallory.post(path, files=large).status_code == 400

    eventually(lambda: _idle(web))
    assert tracemalloc.get_traced_memory()[0] - before < 2 << 20


@pytest.mark.parametrize("path", ["/poster/submit", "/deposits"])
def test_all_fields_of_a_form_together_are_small(mallory: Caller, path: str) -> None:
    fields = {f"what{number}": (None, "x" * FIELD) for number in range(17)}

    answer = mallory.post(path, files=fields)

    assert answer.status_code == 400
    assert "1,048,576 bytes" in answer.text


@pytest.mark.parametrize("path", ["/poster/submit", "/deposits"])
def test_the_file_of_a_form_arrives_in_the_folder_of_uploads_and_a_cut_leaves_nothing(
    web: Web, mallory: Caller, path: str
) -> None:
    """... and not in the temporary folder, which may be memory."""
    folder = web.context.settings.uploads_folder
    temporary = Path(tempfile.gettempdir())
    size = 3 << 20
    before = _held_open(temporary)
    with _connection(web) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {2 * size}\r\n"
            f"Authorization: Bearer {mallory.token}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
            '--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'.encode()
        )
        connection.sendall(b"z" * size)
        eventually(lambda: any(held >= 2 << 20 for held in _held_open(folder).values()) or None)
        elsewhere = set(_held_open(temporary)) - set(_held_open(folder)) - set(before)

    assert not [path for path in elsewhere if " (deleted)" in path]
    eventually(lambda: not _held_open(folder) or None)
    assert not [path for path in folder.glob("forms/*") if path.is_file()]


def _held_open(folder: Path) -> dict[str, int]:
    """The files below the folder that this process has open, with their bytes."""
    held = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if (path := str(descriptor.readlink())).startswith(f"{folder.resolve()}/"):
                held[path] = descriptor.stat().st_size
    return held


@pytest.mark.parametrize("path", ["/poster/submit", "/deposits"])
def test_a_form_that_does_not_state_its_size_is_refused_unread(web: Web, mallory: Caller, path: str) -> None:
    with _connection(web) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
            f"Authorization: Bearer {mallory.token}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
        )
        answered = connection.recv(1 << 16)  # no byte of the body was sent

    assert b"HTTP/1.1 4" in answered


def test_an_upload_that_is_cut_is_removed_in_a_thread_beside_the_loop(
    web: Web, mallory: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many that end together would keep every other request waiting."""
    on_the_loop: list[bool] = []
    remove, before = shutil.rmtree, parts_of_uploads(web)

    def removed(*arguments: Any, **options: Any) -> None:
        on_the_loop.append(_is_on_the_loop())
        remove(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", removed)
    with _connection(web) as connection:
        connection.sendall(
            "POST /v1/uploads?name=a.jpg HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
            f"Authorization: Bearer {mallory.token}\r\n\r\nx".encode()
        )
        eventually(lambda: parts_of_uploads(web) - before)

    eventually(lambda: len(on_the_loop) >= 2)
    assert not any(on_the_loop)


def _is_on_the_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_requests_in_progress_are_limited_and_those_for_health_are_spared(
    web: Web, mallory: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_IN_PROGRESS", 3)
    anybody = web.caller(Role.DEPOSITOR, ["demo"], name="anybody")
    with contextlib.ExitStack() as uploads:
        [refused] = eventually(lambda: _refused_beside_one_more(uploads, web, mallory, anybody, 503))
        alive = requests.get(f"{web.url}/health/live", timeout=30)

    assert (refused.json()["code"], refused.headers["Retry-After"]) == ("too-many-at-once", "5")
    assert alive.status_code == 200
    eventually(lambda: mallory.get("/v1").status_code == 200)


def test_a_token_with_many_requests_in_progress_keeps_out_no_other(
    web: Web, mallory: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IN_PROGRESS_OF_TOKEN", 3)
    other = web.caller(Role.DEPOSITOR, ["demo"], name="bystander")
    with contextlib.ExitStack() as uploads:
        [refused] = eventually(lambda: _refused_beside_one_more(uploads, web, mallory, mallory, 429))
        admitted = other.get("/v1/jobs")

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert admitted.status_code == 200
    eventually(lambda: mallory.get("/v1/jobs").status_code == 200)


def _refused_beside_one_more(
    uploads: contextlib.ExitStack, web: Web, uploader: Caller, caller: Caller, status: int
) -> list[requests.Response]:
    """Begin another upload, without its last byte, and ask; an upload beside another request may be refused.

    The answer, if it has this status; in a list, since a refusal is false to requests.
    """
    uploads.enter_context(_connection(web)).sendall(
        "POST /v1/uploads?name=a.jpg HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        f"Authorization: Bearer {uploader.token}\r\n\r\nx".encode()
    )
    answer = caller.get("/v1/jobs")
    return [answer] if answer.status_code == status else []


def test_an_unknown_method_adds_no_series_of_its_own(web: Web) -> None:
    for number in range(3):
        requests.request("Z" * 3000 + str(number), f"{web.url}/v1", timeout=30)

    counted = web.context.requests.exposition().decode()
    assert 'code="405",method="other",route="/v1"' in counted
    assert "ZZZ" not in counted


def test_the_document_of_the_api_is_built_once_and_nobody_waits_for_it(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answered, builds = threading.Event(), threading.Event(), list[str]()

    def build(document: dict[str, Any], kinds: Any) -> dict[str, Any]:
        builds.append(document["openapi"])
        begun.set()
        assert answered.wait(30)
        return with_meanings(document, kinds)

    monkeypatch.setattr("entrypoints.web.app.with_meanings", build)
    with ThreadPoolExecutor(2) as readers:
        asked = [readers.submit(web.anybody.get, "/openapi.json") for _ in range(2)]
        assert begun.wait(30)
        try:
            live = requests.get(f"{web.url}/health/live", timeout=5)
        finally:
            answered.set()
        documents = [one.result() for one in asked]

    assert live.status_code == 200
    assert len(builds) == 1
    assert documents[0].json()["info"]["title"] == documents[1].json()["info"]["title"] == "arkline"
    assert documents[0].headers["Content-Type"] == "application/json"


def test_of_one_token_few_drafts_are_held_in_memory_as_they_arrive(web: Web) -> None:
    ada = web.caller(Role.DEPOSITOR, ["demo"], name="ada-of-drafts")
    upload = ada.post("/v1/uploads").json()["id"]
    address = urlsplit(web.url)
    head = (
        f"PUT /v1/drafts/{upload} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {31 << 20}\r\n"
        f"Authorization: Bearer {ada.token}\r\n\r\n"
    )

    with contextlib.ExitStack() as unfinished:
        for _ in range(3):
            connection = socket.create_connection((address.hostname, address.port), timeout=20)
            unfinished.enter_context(connection)
            connection.sendall(head.encode() + b" " * (30 << 20))
        refused = connection.recv(4096)

    assert b" 429 " in refused.partition(b"\r\n")[0]
    eventually(lambda: ada.request("PUT", f"/v1/drafts/{upload}", data=b" " * (30 << 20)).status_code == 422)
