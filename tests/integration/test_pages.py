"""The dashboard against the real record: what a page shows, and what its buttons do."""

import hashlib
import re
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
import requests

from entrypoints.web.limits import RateLimit
from entrypoints.web.middleware import SECURITY_HEADERS
from entrypoints.web.pages import lists
from operations.board.board import Board
from operations.board.tally import ENOUGH
from operations.board.values import EVERYTHING, JobSearch, Scope
from operations.deposits import resubmission
from operations.jobs import job_view
from operations.verbs.holds import hold_collection, release_collection
from pipeline import causes
from pipeline.checks import CheckSummary, Stopping
from pipeline.inventory.sql import open_inventory
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile
from pipeline.outcome import Done
from pipeline.principal import Role
from pipeline.records import Job
from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.uploads import stored
from tests.support import planting
from tests.support.boards import until
from tests.support.checks import found_in, scanned
from tests.support.operators import ANN
from tests.support.polling import eventually
from tests.support.recordings import recording
from tests.support.waits import HOST
from tests.support.web import MAIN_PAGES, OWN_FORM, Browser, Web, browser
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds, hosts
from zkstate.fleet.holds import Hold
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove
from zkstate.record.journal import Stamp


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


@pytest.fixture(scope="module")
def operator(web: Web) -> Browser:
    return browser(web, Role.OPERATOR, "olga")


def failed_job(session: Session, kind: FailureKind = FailureKind.SYSTEM) -> str:
    job = planting.apply_event(session, planting.one_job(session), Event.FAIL, kind)
    return job.jid


def await_board(web: Web, jid: str, state: JobState) -> None:
    """Until the board shows the job in this state."""
    board = web.context.board
    seen = board.changes_since(None).last
    for _ in range(100):
        rows = [row for row in board.jobs(EVERYTHING, JobSearch(q=jid), 1).rows if row.state is state]
        if rows:
            return
        board.wait_change(seen, 1)
        seen = board.changes_since(None).last
    raise AssertionError(f"the board does not show {jid} as {state}")


def test_without_a_login_every_page_leads_to_the_login_and_back(web: Web) -> None:
    answer = requests.get(f"{web.url}/jobs?state=failed", timeout=30, allow_redirects=False)

    assert answer.status_code == 303
    assert answer.headers["Location"] == "/login?next=%2Fjobs%3Fstate%3Dfailed"


def test_a_wrong_token_does_not_log_in(web: Web) -> None:
    answer = requests.post(
        f"{web.url}/login", {"token": "ark_wrong"}, headers={"Sec-Fetch-Site": "same-origin"}, timeout=30
    )
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers


ELSEWHERE = ("//evil.example/", "/\\evil.example", "/\t/evil.example", "\t//evil.example", "/a\\..\n//x", "x")


@pytest.mark.parametrize("number", range(len(ELSEWHERE)))
def test_the_login_leads_to_no_other_site(web: Web, number: int) -> None:
    token = web.caller(Role.OPERATOR, name=f"redirected-{number}").token
    answer = requests.post(
        f"{web.url}/login",
        {"token": token, "next": ELSEWHERE[number]},
        headers={"Sec-Fetch-Site": "same-origin"},
        timeout=30,
        allow_redirects=False,
    )
    assert answer.headers["Location"] == "/"


def test_a_token_that_asks_for_too_many_pages_has_to_wait(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = web.caller(Role.DEPOSITOR, name="eager")
    monkeypatch.setitem(web.context.__dict__, "rate_limit", RateLimit(per_minute=2))

    answers = [eager.get("/deposits").status_code for _ in range(3)]

    assert answers == [200, 200, 429]


def cookie_of(text: str) -> dict[str, str]:
    return {"notice": urlsafe_b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    "notice",
    [
        "[" * 11_000,
        '{"text": "\\ud800"}',
        '{"text": 5}',
        '{"text": "a", "tone": ["bad"]}',
        "1" * 5000,
        "\xff",
    ],
    ids=["deep", "surrogate", "number", "tone", "digits", "bytes"],
)
def test_a_cookie_that_holds_no_notice_is_passed_over(web: Web, notice: str) -> None:
    answer = requests.get(f"{web.url}/login", cookies=cookie_of(notice), timeout=30)

    assert (answer.status_code, 'role="status"' in answer.text) == (200, False)


def test_an_unexpected_error_is_answered_with_the_headers_of_every_answer(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("a mistake in the code")

    caller = web.caller(Role.OPERATOR, name="unlucky")
    monkeypatch.setattr(web.context.rate_limit, "count", broken)
    for path in ("/jobs", "/v1/jobs"):
        answer = caller.get(path)

        assert answer.status_code == 500, path
        assert SECURITY_HEADERS.items() <= answer.headers.items(), path
        assert answer.headers["Cache-Control"] == "no-store", path
        assert answer.headers["X-Request-ID"] == answer.json()["request_id"], path


def test_no_cache_keeps_a_page(operator: Browser) -> None:
    for path in ("/", "/login", "/no-such-page", "/static/no-such-file"):
        kept = operator._http.get(f"{operator._url}{path}", timeout=30).headers["Cache-Control"]
        assert kept == "no-store", path


@pytest.mark.parametrize("path", MAIN_PAGES)
def test_every_page_opens_and_allows_no_foreign_script(operator: Browser, web: Web, path: str) -> None:
    assert "<h1" in operator.open(path)


def test_the_page_says_that_a_recorded_job_was_stopped_as_completed(
    operator: Browser, session: Session
) -> None:
    jid = planting.job_in(session, JobState.NOTIFY).jid

    result = operator.act("fail", jid, reason="the receiver is gone", back=f"/jobs/{jid}")

    words = "it was stored and recorded already; its receiver may not have been notified"
    assert f"{jid} was notify and is now completed: {words}." in result


def test_a_failed_job_shows_its_cause_and_the_button_that_continues_it(
    operator: Browser, session: Session
) -> None:
    jid = failed_job(session)

    page = operator.open(f"/jobs/{jid}")
    assert "It failed while pending" in page
    assert "Once the cause is removed, a resume continues with pending" in page
    version = re.search(r'name="act" value="resume">.*?name="version" value="(\d+)"', page)
    assert version is not None
    assert f"arkline resume {jid}" in page
    assert f"$ARKLINE_URL/v1/jobs/{jid}/resume" in page

    result = operator.act("resume", jid, version=version[1], reason="disk is back", back=f"/jobs/{jid}")

    assert f"{jid} was failed and is now pending" in result
    last = jobs.load(session, jid).history[-1]
    assert (last.event, last.by, last.via) == (Event.RESUME, "olga", "web")
    assert "disk is back" in last.message


def test_of_two_tabs_the_second_learns_who_was_first(operator: Browser, session: Session) -> None:
    jid = failed_job(session)
    version = str(jobs.load(session, jid).version)
    operator.act("resume", jid, version=version, back=f"/jobs/{jid}")

    second = operator.act("delete", jid, version=version, reason="old", back=f"/jobs/{jid}")

    assert f"{jid} has changed since you read it: pending" in second
    assert "changed by olga" in second
    assert jobs.load(session, jid).status.status is JobState.PENDING


def test_an_act_that_cannot_be_undone_needs_a_reason(operator: Browser, session: Session) -> None:
    jid = failed_job(session)

    assert "needs a reason" in operator.act("delete", jid, back=f"/jobs/{jid}")
    assert jobs.load(session, jid).status.status is JobState.FAILED


def test_a_form_of_another_site_is_refused(operator: Browser, session: Session) -> None:
    jid = failed_job(session)

    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}, {}):
        answer = operator.send("/act", headers, act="resume", target=jid)
        assert answer.status_code == 403, headers
    assert jobs.load(session, jid).status.status is JobState.FAILED


def test_a_viewer_sees_the_buttons_but_cannot_use_them(web: Web, session: Session) -> None:
    viewer, jid = browser(web, Role.VIEWER, "vera"), failed_job(session)

    assert "This needs the role operator" in viewer.open(f"/jobs/{jid}")
    answer = viewer.send("/act", act="resume", target=jid)
    assert (answer.status_code, "needs the role operator" in answer.text) == (403, True)


def test_a_depositor_sees_only_what_it_deposited(web: Web, session: Session) -> None:
    jid = failed_job(session)
    bid = jobs.load(session, jid).bid
    dora = browser(web, Role.DEPOSITOR, "dora", ["demo"])

    assert "You have no deposit here." in dora.open("/deposits")
    for path in (f"/jobs/{jid}", f"/batches/{bid}", f"/batches/{bid}/report", f"/live/jobs/{jid}"):
        assert "This does not exist" in dora.open(path, 404)
    assert dora.send("/act", act="resume", target=jid).status_code == 404
    for path in ("/fleet", "/space"):
        dora.open(path, 403)
    assert "No job." in dora.open("/jobs")


def test_a_depositor_learns_why_a_deposit_waits_and_nothing_of_others_jobs(
    web: Web, session: Session
) -> None:
    dora = browser(web, Role.DEPOSITOR, "dore", ["demo"])
    job = planting.owned_job(session, "token:dore")
    while job.status.status is not JobState.DOWNLOADING:
        job = planting.apply_event(session, job, next(iter(_ahead(job))))
    record.hand_back(session, planting.acquire(session, job), "test", delay=600, waits_for=HOST)
    foreign = planting.one_job(session).jid
    for _ in range(web.context.settings.host_limit):
        hosts.acquire_connection(session, "example.org:80", 1000, foreign, threading.Event())

    for path in (f"/jobs/{job.jid}", f"/batches/{job.bid}"):
        page = dora.open(path)
        assert "connections to example.org" in page
        assert foreign not in page
        assert foreign in browser(web, Role.OPERATOR, f"o{path[1]}").open(path)


def test_a_depositor_learns_that_a_collection_is_on_hold_and_gets_no_button(
    web: Web, session: Session
) -> None:
    dora = browser(web, Role.DEPOSITOR, "dorh", ["demo"])
    job = planting.owned_job(session, "token:dorh")
    other = planting.owned_job(session, "token:somebody")
    hold_collection(web.context.site, ANN, "demo")
    try:
        page = dora.open(f"/jobs/{job.jid}")
    finally:
        release_collection(web.context.site, ANN, "demo")

    assert "Collection demo was put on hold" in page
    assert other.jid not in page
    assert 'action="/act"' not in page


def _ahead(job: Job) -> Iterator[Event]:
    """The events that bring a job on."""
    possible = JOB.events(job.status.status)
    yield from (event for event in (Event.ACQUIRE, Event.SUCCEED) if event in possible)


def test_a_text_of_a_depositor_is_never_markup(operator: Browser, session: Session, web: Web) -> None:
    name = "<script>alert(1)</script><b>.txt"
    job = planting.one_job(session, payload_name=name)
    jid = planting.apply_event(session, job, Event.FAIL).jid
    await_board(web, jid, JobState.FAILED)

    for path in (f"/jobs/{jid}", f"/batches/{job.bid}", "/jobs?state=failed"):
        text = operator._http.get(f"{web.url}{path}", timeout=30).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


def test_a_deposit_by_the_form_is_the_depositors_own(web: Web, session: Session) -> None:
    dana = browser(web, Role.DEPOSITOR, "dana", ["demo"])

    answer = dana.send("/deposits", collection="demo", url="http://example.org/photo.tif", title="A photo")

    assert "The repository has your deposit" in answer.text
    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    assert "photo.tif" in dana.open(f"/batches/{bid}")


def test_the_form_names_a_file_whose_address_does_not_end_in_its_name(web: Web, session: Session) -> None:
    dana = browser(web, Role.DEPOSITOR, "dann", ["demo"])
    assert 'name="name"' in dana.open("/deposits/new")

    address = "http://example.org/datafile/4711"
    answer = dana.send("/deposits", OWN_FORM, collection="demo", url=address, name="photo.tif")

    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    assert batches.load(session, bid).submission.payload_filename == "photo.tif"


@pytest.mark.parametrize("box", [{}, {"new_version": "yes"}])
def test_the_form_asks_whether_an_object_may_get_a_new_version(
    web: Web, session: Session, box: dict[str, str]
) -> None:
    name = f"danv{len(box)}"
    dana = browser(web, Role.DEPOSITOR, name, ["demo"])
    assert 'name="new_version" type="checkbox"' in dana.open("/deposits/new")

    answer = dana.send("/deposits", OWN_FORM, collection="demo", url="http://example.org/photo.tif", **box)

    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    assert batches.load(session, bid).submission.new_version is bool(box)


def test_a_file_that_is_deposited_by_the_form_is_kept_as_an_upload_of_the_depositor(web: Web) -> None:
    dana = browser(web, Role.DEPOSITOR, "danc", ["demo"])

    answer = dana.send_file("/deposits", "photo.tif", b"light" * 1000, collection="demo", title="A photo")

    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    submitted = batches.load(web.context.session, bid).submission
    assert re.fullmatch(r"upload:[0-9a-f]+/photo\.tif", submitted.payload_url)
    assert (submitted.owner, submitted.erc_what) == ("token:danc", "A photo")


@pytest.mark.parametrize("file", [b"light" * 1000, None])
def test_a_form_that_is_sent_twice_by_a_double_click_or_again_is_one_deposit(
    web: Web, file: bytes | None
) -> None:
    dana = browser(web, Role.DEPOSITOR, f"dane{bool(file)}", ["demo"])
    (form,) = re.findall('name="form" value="([^"]+)"', dana.open("/deposits/new"))

    def send(title: str) -> str:
        fields = {"collection": "demo", "form": form, "title": title}
        if file is None:
            answer = dana.send("/deposits", **fields, url="http://example.org/photo.tif")
        else:
            answer = dana.send_file("/deposits", "photo.tif", file, **fields)
        return answer.url.rpartition("/")[2]

    with ThreadPoolExecutor(2) as pool:
        clicks = set(pool.map(send, ["A photo"] * 2))

    assert len(clicks) == 1
    assert send("A photo") in clicks
    assert send("Another title") not in clicks


def test_who_sends_a_form_after_the_login_has_ended_learns_that_nothing_was_done(web: Web) -> None:
    dana = browser(web, Role.DEPOSITOR, "danf", ["demo"])
    dana.send("/logout")

    answer = dana.send("/deposits", collection="demo", url="http://example.org/photo.tif")

    assert "nothing was done with what you sent" in answer.text
    assert "nothing was done" not in dana.open("/login")


def test_a_file_for_a_foreign_collection_is_refused_and_leaves_nothing(web: Web) -> None:
    dana = browser(web, Role.DEPOSITOR, "dand", ["demo"])

    answer = dana.send_file("/deposits", "refused.tif", b"light", collection="other")

    assert answer.status_code == 422
    assert list(web.context.settings.uploads_folder.rglob("*refused*")) == []


def test_a_deposit_that_cannot_be_accepted_says_what_to_change(web: Web) -> None:
    dana = browser(web, Role.DEPOSITOR, "danb", ["demo"])

    answer = dana.send("/deposits", collection="demo", url="ftp://example.org/photo.tif")

    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_a_mistake_in_a_field_is_marked_and_costs_neither_the_values_nor_the_file(
    web: Web, session: Session
) -> None:
    dana = browser(web, Role.DEPOSITOR, "dane", ["demo"])
    values = {"collection": "demo", "title": 'Der "Hafen"', "local_id": "MUE-1", "new_version": "yes"}

    answer = dana.send_file("/deposits", "fo to.tif", b"light", digest="d41d8", kind="file", **values)

    assert answer.status_code == 422
    text = unescape(answer.text)
    assert re.search(r'<input id="digest"[^>]*value="d41d8"[^>]*aria-invalid="true"', text)
    assert text.count('aria-invalid="true"') == 1
    assert 'value="Der "Hafen""' in text
    assert 'value="MUE-1"' in text
    assert '<option value="file" selected>' in text
    assert 'value="yes" checked' in text
    assert "fo to.tif has arrived" in text
    (received,) = re.findall(r'name="received" value="(.*?)"', text)

    answer = dana.send("/deposits", OWN_FORM, **values, received=received)

    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    submitted = batches.load(session, bid).submission
    assert (submitted.payload_url, submitted.payload_filename) == (received, "fo to.tif")


def test_the_limits_of_a_collection_are_shown_before_anything_is_chosen(web: Web) -> None:
    page = browser(web, Role.DEPOSITOR, "lim", ["demo"]).open("/deposits/new")

    assert re.search(r"<strong>demo</strong>: a file of [\d.]+ [kMGT]B, an object of [\d,]+ files and", page)


TABLE = "Datei;Titel\na.jpg;Hafen\nb.jpg;Mole\n".encode("cp1252")


def test_a_table_in_the_form_is_recognised_and_deposited_as_a_file_only_if_that_is_said(
    web: Web, session: Session
) -> None:
    dana = browser(web, Role.DEPOSITOR, "danh", ["demo"])

    answer = dana.send_file("/deposits", "liste.csv", TABLE, collection="demo")

    assert answer.status_code == 422
    assert "liste.csv looks like a table. To deposit" in answer.text
    (received,) = re.findall(r'name="received" value="(.*?)"', answer.text)
    answer = dana.send("/deposits", collection="demo", kind="file", received=received)
    (bid,) = re.findall(r"/batches/(bid\d+)$", answer.url)
    assert batches.load(session, bid).submission.payload_url == received


@pytest.mark.parametrize("body", [b"day;degrees\n1;17\n", b"no table", bytes(range(256)), b""])
def test_a_file_that_lists_no_files_is_deposited_by_the_form_without_a_question(
    web: Web, body: bytes
) -> None:
    dana = browser(web, Role.DEPOSITOR, f"dani{len(body)}", ["demo"])

    answer = dana.send_file("/deposits", "weather.csv", body, collection="demo")

    assert re.search(r"/batches/(bid\d+)$", answer.url), answer.text


@pytest.mark.parametrize(
    ("field", "value"),
    [("url", "ftp://example.org/a.tif"), ("name", "../a.tif"), ("local_id", "x" * 5000), ("kind", "")],
)
def test_the_form_marks_the_field_that_is_refused(web: Web, field: str, value: str) -> None:
    dana = browser(web, Role.DEPOSITOR, f"danf{field}", ["demo"])
    address = "http://example.org/list.checkm" if field == "kind" else "http://example.org/a.tif"

    answer = dana.send("/deposits", OWN_FORM, **{"collection": "demo", "url": address, field: value})

    assert answer.status_code == 422
    (marked,) = re.findall(r'<(?:input|select) id="(\w+)"[^>]*aria-invalid="true"', answer.text)
    assert marked == field


def test_a_kept_file_of_somebody_else_is_not_deposited(web: Web) -> None:
    dana, eve = (browser(web, Role.DEPOSITOR, name, ["demo"]) for name in ("dang", "evel"))
    refused = dana.send_file("/deposits", "mine.tif", b"light", collection="demo", digest="d41d8")
    (received,) = re.findall(r'name="received" value="(.*?)"', refused.text)

    answer = eve.send("/deposits", collection="demo", received=received)

    assert answer.status_code == 422
    assert "there is no upload" in unescape(answer.text)


def failed_deposit(session: Session, owner: str, **changes: object) -> Job:
    """The only job of this person's deposit, whose content was refused."""
    job = planting.owned_job(session, owner, **changes)
    return planting.apply_event(session, job, Event.FAIL, FailureKind.CONTENT)


def test_only_what_failed_is_deposited_again_with_the_corrected_file_after_a_preview(
    web: Web, session: Session
) -> None:
    dora = browser(web, Role.DEPOSITOR, "dorc", ["demo"])
    job = failed_deposit(session, "token:dorc", erc_what="Harbour", local_id=("shelf 12",))
    assert "deposit the corrected objects again" in dora.open(f"/jobs/{job.jid}")
    assert "Harbour" in dora.open(f"/batches/{job.bid}/again")

    body = b"corrected"
    files = {f"file-{job.jid}": ("harbour.tif", body)}
    answer = dora._http.post(f"{web.url}/batches/{job.bid}/again", files=files, headers=OWN_FORM, timeout=30)
    preview = unescape(answer.text)
    assert answer.status_code == 200
    assert ("1 object of" in preview, "the corrected file" in preview) == (True, True)
    (upload,) = re.findall(r'name="upload" value="(\w+)"', preview)
    fields = {"upload": upload, "kind": "single_file_batch_manifest"}
    done = dora.send(f"/batches/{job.bid}/again/deposit", **fields)
    twice = dora.send(f"/batches/{job.bid}/again/deposit", **fields)

    (bid,) = re.findall(r"/batches/(bid\d+)$", done.url)
    assert f"This was deposited before: {bid}" in twice.text
    given = batches.load(session, bid).submission
    assert (given.owner, given.profile_name, job.bid in given.note) == ("token:dorc", "demo", True)
    assert (given.new_version, "new_version" in preview) == (False, False)
    folder = stored.file_folder(web.context.settings.uploads_folder, upload, resubmission.MANIFEST)
    manifest = (folder / stored.CONTENT).read_bytes()
    (row,) = checkm.parse(manifest, "again", ManifestProfile.FILE_BATCH).rows
    assert (row.title, row.local_id, row.size) == ("Harbour", ("shelf 12",), len(body))
    assert row.digest is not None
    assert row.digest.value == hashlib.sha512(body).hexdigest()


def test_a_deposit_that_is_made_again_asks_for_the_yes_of_its_own(web: Web, session: Session) -> None:
    dora = browser(web, Role.DEPOSITOR, "dorv", ["demo"])
    demo = web.context.site.profiles.get("demo")
    open_inventory(web.context.settings.inventory).record(
        recording(
            "ark:/99999/fk4again",
            jid="jidagain",
            owner=demo.owner,
            collections=demo.collections,
            local_id=("shelf 99",),
        )
    )
    job = failed_deposit(session, "token:dorv", local_id=("shelf 99",), new_version=True)

    preview = dora.send(f"/batches/{job.bid}/again", OWN_FORM, **{f"changed-{job.jid}": "1"})
    (upload,) = re.findall(r'name="upload" value="(\w+)"', preview.text)
    done = dora.send(
        f"/batches/{job.bid}/again/deposit",
        upload=upload,
        kind="single_file_batch_manifest",
        new_version="yes",
    )

    assert "version 2 of ark:/99999/fk4again" in preview.text
    assert 'name="new_version" type="checkbox"' in preview.text
    (bid,) = re.findall(r"/batches/(bid\d+)$", done.url)
    assert batches.load(session, bid).submission.new_version is True


def test_an_object_is_deposited_again_from_its_address_and_a_foreign_deposit_by_nobody_else(
    web: Web, session: Session
) -> None:
    dora = browser(web, Role.DEPOSITOR, "dord", ["demo"])
    job = failed_deposit(session, "token:dord")

    preview = dora.send(f"/batches/{job.bid}/again", OWN_FORM, **{f"changed-{job.jid}": "1"})

    assert job.configuration.payload_url in unescape(preview.text)
    other = browser(web, Role.DEPOSITOR, "dorf", ["demo"])
    assert other.send(f"/batches/{job.bid}/again").status_code == 404
    other.open(f"/batches/{job.bid}/again", 404)
    (upload,) = re.findall(r'name="upload" value="(\w+)"', preview.text)
    taken = failed_deposit(session, "token:dorf")
    refused = other.send(
        f"/batches/{taken.bid}/again/deposit", upload=upload, kind="single_file_batch_manifest"
    )
    assert refused.status_code == 404


def test_an_upload_that_was_refused_has_to_be_corrected_before_it_is_deposited_again(
    web: Web, session: Session
) -> None:
    dora = browser(web, Role.DEPOSITOR, "dorg", ["demo"])
    job = failed_deposit(session, "token:dorg", payload_url=f"upload:{'0' * 32}/photo.tif")

    answer = dora.send(f"/batches/{job.bid}/again")

    assert answer.status_code == 422
    assert "choose the corrected file" in answer.text


def test_a_pause_stands_on_the_front_page_with_its_reason_and_the_button_that_ends_it(
    operator: Browser, session: Session
) -> None:
    assert "The queue is paused" in operator.act("pause", reason="database is moved", back="/stops")
    try:
        page = operator.open("/stops")
        assert "by olga" in page
        assert "(database is moved)" in page
        assert 'value="unpause"' in page
    finally:
        operator.act("unpause")
    assert holds.paused(session) is None


def test_a_worker_that_is_drained_and_does_not_answer_is_among_the_stops_with_the_button_that_ends_it(
    operator: Browser, session: Session, web: Web
) -> None:
    holds.place(session, Hold.of(ANN), worker="worker1@gone")
    try:
        page = shows(operator, "/stops", "Undo the drain of worker1@gone")
        assert "<strong>worker1@gone</strong> by ann@desk" in page
        assert "has not followed yet" in operator.act("undo-drain", "worker1@gone")
        assert holds.drained(session) == {}
    finally:
        holds.end(session, Stamp.of(ANN), worker="worker1@gone")


def shows(operator: Browser, path: str, text: str) -> str:
    """The page once it has the text: what is known of the fleet is some seconds old."""
    deadline = time.monotonic() + 60
    while text not in (page := operator.open(path)):
        assert time.monotonic() < deadline, text
        time.sleep(0.2)
    return page


def test_a_hold_shows_how_many_jobs_it_keeps_back(operator: Browser, session: Session, web: Web) -> None:
    board = web.context.board
    declared = planting.one_job(session, size=2048)
    hold_collection(web.context.site, ANN, "demo")
    for job in (declared, planting.one_job(session)):
        planting.apply_event(session, job, Event.HOLD)
        await_board(web, job.jid, JobState.HELD)
    until(board, lambda: any(stop.sized for stop in board.stops(EVERYTHING).collections))
    try:
        shown = operator.open("/stops")
        assert "Release demo" in shown
        assert re.search(r"keeps back \d+ jobs \(1 with 2\.0 kB, \d+ of unknown size\)", shown)
    finally:
        release_collection(web.context.site, ANN, "demo")


def test_failures_of_one_cause_are_resumed_together_after_a_preview(
    operator: Browser, session: Session, web: Web
) -> None:
    jids = [failed_job(session, FailureKind.TRANSIENT) for _ in range(3)]
    for jid in jids:
        await_board(web, jid, JobState.FAILED)
    group = next(g for g in web.context.board.failures(EVERYTHING) if g.kind is FailureKind.TRANSIENT)

    preview = operator.open(f"/bulk?cause={group.id}&verb=resume")
    assert f"{len(jids)} jobs would be acted on" in preview
    token = re.search(r'name="token" value="([^"]+)"', preview)
    assert token is not None
    planting.apply_event(session, jobs.load(session, jids[0]), Event.RESUME)

    receipt = operator.send("/bulk", verb="resume", token=token[1], reason="over").text

    assert "2 done, 0 refused, 1 moved meanwhile" in receipt
    again = operator.send("/bulk", verb="resume", token=token[1]).text
    assert f"0 done, 0 refused, {len(jids)} moved meanwhile" in again


def stopped_job(session: Session, digest: str) -> Job:
    """A job that a finding of a check stopped."""
    stopping = Stopping(finding=digest, codes=("Eicar",))
    run = CheckSummary.of(scanned(found_in("a.txt", "Eicar")), stopping=stopping)
    message = f"the check clamav found something in 1 file: 'a.txt' (Eicar) (finding {digest})"
    held = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))
    kind, done = FailureKind.CONTENT, Done(checks=(run,))
    cause = causes.CHECK_STOPPED(check="clamav", findings="Eicar")
    move = JobMove(Event.FAIL, "worker", message=message, kind=kind, done=done, cause=cause)
    return jobs.move(session, held, move)


def test_what_stopped_jobs_is_overruled_on_their_pages_for_one_or_for_all_of_a_cause(
    operator: Browser, session: Session, web: Web
) -> None:
    digests = [f"{number:016x}" for number in (1, 2, 3)]
    stopped = [stopped_job(session, digest) for digest in digests]
    for job in stopped:
        await_board(web, job.jid, JobState.FAILED)
    groups = web.context.board.failures(EVERYTHING)
    (group,) = (one for one in groups if "the check clamav found" in one.message)
    first = stopped[0]

    page = operator.open(f"/jobs/{first.jid}")
    assert f"arkline resume {first.jid} --overrule {digests[0]} --reason WHY" in page
    form = {"act": "overrule", "target": first.jid, "version": str(first.version), "finding": digests[0]}
    operator.send("/act", OWN_FORM, **form)
    assert jobs.load(session, first.jid).status.status is JobState.FAILED  # it needs a reason
    operator.send("/act", OWN_FORM, **form, reason="a sample")
    assert jobs.load(session, first.jid).history[-1].overruled == digests[0]
    failure = operator.open(f"/failures/{group.id}")
    assert "clamav:Eicar" in failure
    assert "kept current" in failure
    preview = operator.open(f"/bulk?cause={group.id}&verb=resume&finding=clamav:Eicar")
    assert f"arkline resume --cause {group.id} --overrule clamav:Eicar --reason WHY" in preview
    token = re.search(r'name="token" value="([^"]+)"', preview)
    assert token is not None
    refused = operator.send("/bulk", verb="resume", token=token[1])
    receipt = operator.send("/bulk", verb="resume", token=token[1], reason="samples").text

    assert refused.status_code == 422
    assert "a finding is overruled for a reason" in refused.text
    assert "2 done, 0 refused" in " ".join(receipt.split())
    for job, digest in zip(stopped[1:], digests[1:], strict=True):
        entry = jobs.load(session, job.jid).history[-1]
        assert (entry.overruled, entry.reason) == (digest, "samples")


def plant_slow(session: Session) -> str:
    """Jobs that leave a state at once, and one that is there for 12 minutes."""
    _, jids = planting.split_batch(session, ENOUGH + 5)
    estimating = [planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE) for jid in jids]
    for job in estimating[1:]:
        planting.apply_event(session, job, Event.SUCCEED)
    job = planting.acquire(session, estimating[0])
    since = job.status.last_modification_date - timedelta(minutes=12)
    old = job.model_copy(update={"status": job.status.model_copy(update={"last_modification_date": since})})
    return record.hand_back(session, old, "test", delay=600, waits_for=HOST).jid


def test_a_job_that_is_slower_than_usual_is_marked_with_both_figures_and_listed_at_an_address(
    operator: Browser, session: Session, web: Web
) -> None:
    board = web.context.board
    assert board.wait_filled(30)  # of jobs that it does not see move, it does not know how long they stayed
    jid = plant_slow(session)
    search = JobSearch(state=JobState.ESTIMATING, slow=True)
    until(board, lambda: bool(board.jobs(EVERYTHING, search, 1).rows))

    front = operator.open("/")
    listed = operator.open("/jobs?state=estimating&slow=1")

    figures = "estimating for 12 minutes; 95 % of jobs need less than 10 seconds."
    assert "/jobs?state=estimating&slow=1" in front
    assert "1 slow: oldest 12 minutes; 95 % of jobs need less than 10 seconds" in front
    assert (figures in listed, jid in listed, "1 job<" in listed) == (True, True, True)
    assert figures in operator.open(f"/jobs/{jid}")
    assert jid in operator.open("/jobs?older_than=10m")
    assert jid not in operator.open("/jobs?older_than=1h")
    assert jid in operator.open("/jobs?waiting=host")
    assert "'soon' is not a duration; write 90s, 30m, 2h or 3d" in operator.open("/jobs?older_than=soon", 422)


def test_the_search_leads_to_the_job_and_to_the_batch(operator: Browser, session: Session) -> None:
    job = planting.one_job(session)

    assert f"<title>{job.jid}" in operator.open(f"/find?q={job.jid}")
    assert f"<p>{job.bid} ·" in operator.open(f"/find?q=+{job.bid}+")
    assert "A text is looked for in title" in operator.open("/find?q=nothing-like-this")


def test_the_search_finds_a_deposit_by_its_name_and_lists_of_jobs_show_it(
    web: Web, operator: Browser, session: Session
) -> None:
    other, _ = planting.split_batch_of(session, {"deposit_name": "Nachlass Meyer"})
    bid = planting.acquired_batch(session, deposit_name="Nachlass Müller 1911").bid
    until(web.context.board, lambda: "Nachlass Müller 1911" in operator.open("/batches"))

    assert f"<p>{bid} ·" in operator.open("/find?q=nachlass+müller")
    assert {bid, other} <= set(re.findall(r"bid\d{10}", operator.open("/find?q=nachlass")))
    assert "Nachlass Meyer" in operator.open(f"/jobs?bid={other}")


def test_an_open_page_gets_the_new_state_as_a_part(web: Web, session: Session, operator: Browser) -> None:
    jid = failed_job(session)
    with operator._http.get(f"{web.url}/live/jobs/{jid}", stream=True, timeout=30) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        lines = stream.iter_lines(decode_unicode=True)
        assert next(lines) == "retry: 2000"
        planting.apply_event(session, jobs.load(session, jid), Event.RESUME)
        for line in lines:
            if "is-pending" in line:
                break


def test_a_damaged_job_is_repaired_by_the_button_of_its_page(operator: Browser, session: Session) -> None:
    jid = planting.one_job(session).jid
    session.zk.set(paths.job_status(jid), b"{")

    assert "Repair the record" in operator.open(f"/jobs/{jid}", 500)
    operator.act("repair", jid, reason="a disk lost it")

    assert jobs.load(session, jid).status.status is JobState.FAILED


def test_a_list_of_failures_that_nobody_waits_for_reads_no_further_page(
    operator: Browser, web: Web, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await_board(web, failed_job(session), JobState.FAILED)
    group = max(web.context.board.failures(EVERYTHING), key=lambda one: one.count)
    read, pages, answered = job_view.rows, list[str | None](), threading.Event()

    def one_row(session: Session, board: Board, scope: Scope, search: JobSearch, *place: Any) -> Any:
        pages.append(place[-1])
        assert answered.wait(60)
        return read(session, board, scope, search, 1, place[-1])

    monkeypatch.setattr(job_view, "rows", one_row)
    monkeypatch.setattr(lists.failure_list, "seconds", 0.0)

    operator.open(f"/failures/{group.id}.csv", 503)

    answered.set()
    eventually(lambda: not web.context.record_work.running)
    assert group.count >= 3
    assert len(pages) <= 1
