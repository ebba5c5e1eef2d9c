"""The REST API on a record with planted batches; one server for all tests."""

import asyncio
import http.client
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from itertools import islice
from urllib.parse import urlsplit

import pytest
import requests

from entrypoints.web import streams as of_streams
from entrypoints.web.limits import RateLimit
from entrypoints.web.pages import streaming
from entrypoints.web.streams import EventStream, Opening, Streams
from operations import tokens
from pipeline import codes
from pipeline.attempt import UNATTENDED
from pipeline.errors import ServiceUnreachable
from pipeline.inventory.tokens import revoke_token
from pipeline.principal import Role
from pipeline.records import SubmissionType, now
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from pipeline.working_storage import mount
from tests.support import planting
from tests.support.errors import raises_code
from tests.support.polling import eventually
from tests.support.web import Caller, Web, serving_board
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.record import batches, jobs

PAYLOAD = "https://example.org/harbour.txt"
OWN, OTHERS = "token:scans", "token:maps"


@pytest.fixture(scope="module")
def web(module_settings: Settings, record: Session) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def scans(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, name="scans")


@pytest.fixture(scope="module")
def operator(web: Web) -> Caller:
    return web.caller(Role.OPERATOR, name="olga")


def deposit(caller: Caller, **more: object) -> requests.Response:
    return caller.post("/v1/batches", {"profile": "demo", "payload_url": PAYLOAD, **more})


def planted_job(record: Session, owner: str = OTHERS) -> str:
    """A pending job of a batch of this owner."""
    batch = planting.acquired_batch(record, owner=owner)
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    return batches.all_jobs(record, batch.bid)[0]


def test_a_deposit_is_answered_with_its_place_and_belongs_to_the_token(
    scans: Caller, record: Session
) -> None:
    answer = deposit(scans, what="Harbour")

    assert answer.status_code == 201
    bid = answer.json()["bid"]
    assert answer.headers["Location"] == f"/v1/batches/{bid}"
    submission = batches.load(record, bid).submission
    assert (submission.owner, submission.submitter, submission.erc_what) == (OWN, "scans", "Harbour")
    assert scans.get(answer.headers["Location"]).json()["status"] == "pending"


@pytest.mark.parametrize(("body", "kept"), [({}, False), ({"new_version": True}, True)])
def test_a_deposit_keeps_whether_an_object_may_get_a_new_version(
    scans: Caller, record: Session, body: dict[str, bool], *, kept: bool
) -> None:
    bid = deposit(scans, **body).json()["bid"]

    assert batches.load(record, bid).submission.new_version is kept


@pytest.mark.parametrize(("name", "kind"), [("", "file"), ("scans.zip", "container"), ("a.tif", "file")])
def test_a_payload_is_named_by_the_deposit_or_by_nobody_yet(
    scans: Caller, record: Session, name: str, kind: str
) -> None:
    body = {"payload_url": "https://example.org/datafile/4711", "name": name}
    bid = deposit(scans, **body).json()["bid"]

    submission = batches.load(record, bid).submission
    assert (submission.payload_filename, submission.type) == (name, SubmissionType(kind))


def test_a_deposit_has_the_name_that_it_was_given_in_its_batch_in_lists_and_in_its_report(
    scans: Caller, record: Session
) -> None:
    name = "Nachlass Müller 1911"
    bid = deposit(scans, deposit_name=name).json()["bid"]

    assert batches.load(record, bid).submission.payload_name == "harbour.txt"
    assert scans.get(f"/v1/batches/{bid}").json()["name"] == name
    report = scans.get(f"/v1/batches/{bid}/report").json()
    assert (report["deposit_name"], report["payload_name"]) == (name, "harbour.txt")
    (row,) = eventually(lambda: scans.get("/v1/batches?q=nachlass").json()["rows"])
    assert (row["bid"], row["name"]) == (bid, name)


def test_a_deposit_without_a_name_is_called_by_its_payload(scans: Caller) -> None:
    bid = deposit(scans).json()["bid"]

    assert scans.get(f"/v1/batches/{bid}").json()["name"] == "harbour.txt"
    assert scans.get(f"/v1/batches/{bid}/report").json()["deposit_name"] is None


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\u202egnp.exe", "e" * 256], ids=ascii)
def test_a_name_of_a_deposit_that_cannot_be_shown_is_refused(scans: Caller, name: str) -> None:
    answer = deposit(scans, deposit_name=name)

    assert answer.status_code == 422
    assert "name" in answer.json()["detail"]


def test_a_request_repeated_under_another_name_gets_its_batch(scans: Caller) -> None:
    key = {"Idempotency-Key": "named-twice"}
    body = {"profile": "demo", "payload_url": PAYLOAD}
    first = scans.post("/v1/batches", {**body, "deposit_name": "one"}, headers=key).json()["bid"]

    again = scans.post("/v1/batches", {**body, "deposit_name": "two"}, headers=key)

    assert (again.status_code, again.json()["bid"]) == (200, first)
    assert scans.get(f"/v1/batches/{first}").json()["name"] == "one"


def test_a_name_that_nothing_can_be_stored_under_is_refused(scans: Caller) -> None:
    answer = deposit(scans, name="../a.tif")

    assert answer.status_code == 422
    assert "give another name" in answer.json()["detail"]


def test_a_request_of_before_the_upgrade_that_is_repeated_gets_its_batch(
    scans: Caller, record: Session
) -> None:
    key = {"Idempotency-Key": "before-the-upgrade"}
    body = {"profile": "demo", "payload_url": PAYLOAD}
    bid = scans.post("/v1/batches", body, headers=key).json()["bid"]
    submission = batches.load(record, bid).submission
    record.zk.set(
        paths.submission(bid),
        codec.encode(submission.model_copy(update={"new_version": None, "payload_filename": "4711"})),
    )

    again = scans.post("/v1/batches", body, headers=key)

    assert (again.status_code, again.json()["bid"]) == (200, bid)


def test_a_repeated_request_gets_the_same_batch_and_another_body_is_refused(web: Web, scans: Caller) -> None:
    key = {"Idempotency-Key": "2026-11-21"}
    body = {"profile": "demo", "payload_url": PAYLOAD}
    first = scans.post("/v1/batches", body, headers=key)

    again = scans.post("/v1/batches", body, headers=key)
    other = scans.post("/v1/batches", {**body, "what": "other"}, headers=key)
    somebody = web.caller(Role.DEPOSITOR, name="same-key").post(
        "/v1/batches", {**body, "what": "x"}, headers=key
    )

    assert again.status_code == 200
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json()["bid"] == first.json()["bid"]
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    assert somebody.status_code == 201


def test_a_misspelled_field_is_refused_by_its_name(scans: Caller) -> None:
    answer = scans.post("/v1/batches", {"profile": "demo", "payload_url": PAYLOAD, "tilte": "Harbour"})

    assert answer.status_code == 422
    (wrong,) = answer.json()["errors"]
    assert wrong == {"at": ["body", "tilte"], "message": "is no field of this request (/docs has them)"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"profile": "demo"}, "payload_url"),
        ({"profile": "demo", "payload_url": "ftp://example.org/a"}, "http and https only"),
        ({"profile": "demo", "payload_url": "https://a:secret@example.org/a"}, "without one"),
        ({"profile": "nowhere", "payload_url": PAYLOAD}, "nowhere"),
        ({"profile": "demo", "payload_url": "https://example.org/a.checkm"}, "give its type"),
    ],
)
def test_a_wrong_deposit_is_answered_422_without_its_secrets(
    scans: Caller, body: dict[str, str], said: str
) -> None:
    answer = scans.post("/v1/batches", body)

    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert "secret" not in answer.text


@pytest.mark.parametrize("name", ["dryrun", "dry-run", "Dry_Run"])
def test_a_misspelled_dry_run_acts_on_nothing(scans: Caller, name: str) -> None:
    answer = scans.post(f"/v1/batches?{name}=true", {"profile": "demo", "payload_url": PAYLOAD})

    assert answer.status_code == 422
    assert answer.json()["detail"] == f"query.{name}: is no parameter of this request (/docs has them)"


def test_a_viewer_does_not_deposit_and_learns_which_role_is_missing(web: Web) -> None:
    answer = deposit(web.caller(Role.VIEWER, name="viewer-1"))

    assert answer.status_code == 403
    assert "needs the role depositor" in answer.json()["detail"]


def test_a_depositor_does_not_submit_to_another_collection(web: Web) -> None:
    answer = deposit(web.caller(Role.DEPOSITOR, ["maps"], name="maps-only"))

    assert answer.status_code == 403
    assert "rights for collection demo" in answer.json()["detail"]


@pytest.mark.parametrize("below", ["", "/why", "/timeline", "/progress", "/events"])
def test_anothers_job_is_answered_as_if_it_did_not_exist(scans: Caller, record: Session, below: str) -> None:
    jid, absent = planted_job(record), "jid9999999999"

    answer = scans.get(f"/v1/jobs/{jid}{below}", headers={"If-None-Match": "*"})
    other = scans.get(f"/v1/jobs/{absent}{below}", headers={"If-None-Match": "*"})

    assert (answer.status_code, other.status_code) == (404, 404)
    facts, others = answer.json(), other.json()
    assert facts.pop("request_id") != others.pop("request_id")
    assert json.dumps(facts).replace(jid, absent) == json.dumps(others)


@pytest.mark.parametrize("below", ["", "/why", "/jobs", "/history", "/report", "/events"])
def test_anothers_batch_is_answered_as_if_it_did_not_exist(
    web: Web, scans: Caller, record: Session, below: str
) -> None:
    bid = jobs.load(record, planted_job(record)).bid
    elsewhere = web.caller(Role.OPERATOR, ["maps"], name=f"maps{below.replace('/', '-')}")

    assert scans.get(f"/v1/batches/{bid}{below}").status_code == 404
    assert elsewhere.get(f"/v1/batches/{bid}{below}").status_code == 404


def test_an_own_job_is_shown_without_what_only_operators_need(scans: Caller, record: Session) -> None:
    jid = planted_job(record, OWN)

    view = scans.get(f"/v1/jobs/{jid}").json()

    assert (view["state"], view["working_dir"], view["verbs"]) == ("pending", "", [])
    assert scans.get(f"/v1/jobs/{jid}/why").json()["id"] == jid
    assert scans.get(f"/v1/jobs/{jid}/timeline").json()["steps"]


def test_an_unchanged_job_is_answered_304(operator: Caller, record: Session) -> None:
    jid = planted_job(record)
    etag = operator.get(f"/v1/jobs/{jid}").headers["ETag"]

    same = operator.get(f"/v1/jobs/{jid}", headers={"If-None-Match": etag})
    operator.post(f"/v1/jobs/{jid}/hold")
    changed = operator.get(f"/v1/jobs/{jid}", headers={"If-None-Match": etag})

    assert (same.status_code, same.content) == (304, b"")
    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag


def test_a_verb_is_recorded_with_who_through_what_and_why(operator: Caller, record: Session) -> None:
    jid = planted_job(record)

    answer = operator.post(f"/v1/jobs/{jid}/hold", {"reason": "wait for Ben"})

    assert (answer.status_code, answer.json()["now"]) == (200, "held")
    last = jobs.load(record, jid).history[-1]
    assert (last.by, last.via, last.event) == ("olga", "api", Event.HOLD)
    assert last.request_id == answer.headers["X-Request-ID"]
    assert "wait for Ben" in last.message


def test_a_verb_that_the_table_does_not_allow_is_answered_409_with_what_is_possible(
    operator: Caller, record: Session
) -> None:
    answer = operator.post(f"/v1/jobs/{planted_job(record)}/resume")

    assert (answer.status_code, answer.json()["code"]) == (409, "illegal-transition")
    assert sorted(answer.json()["allowed"]) == ["fail", "hold"]


def test_the_second_of_two_tabs_learns_who_was_first(web: Web, operator: Caller, record: Session) -> None:
    jid = planted_job(record)
    seen = {"If-Match": operator.get(f"/v1/jobs/{jid}").headers["ETag"]}
    first = web.caller(Role.OPERATOR, name="first")
    assert first.post(f"/v1/jobs/{jid}/hold", headers=seen).status_code == 200

    second = operator.post(f"/v1/jobs/{jid}/fail", {"reason": "mistake"}, headers=seen)

    assert second.status_code == 412
    problem = second.json()
    assert (problem["code"], problem["state"], problem["changed_by"]) == ("moved", "held", "first")
    assert sorted(problem["allowed"]) == ["delete", "release"]
    assert jobs.load(record, jid).status.status is JobState.HELD


@pytest.mark.parametrize("search", [{"bid": "bid0000009999"}, {"collection": "nope"}])
def test_a_dry_run_for_a_name_that_does_not_exist_is_refused(
    operator: Caller, search: dict[str, str]
) -> None:
    answer = operator.post("/v1/bulk/hold/dry-run", {"select": {"search": search}})

    assert (answer.status_code, answer.json()["code"]) == (404, "missing")


def test_a_collection_of_others_is_answered_as_an_unknown_one(web: Web, record: Session) -> None:
    planted_job(record)
    limited = web.caller(Role.OPERATOR, ["maps"], name="mia")

    others, unknown = (limited.get("/v1/jobs", params={"collection": name}) for name in ("demo", "nope"))

    assert (others.status_code, unknown.status_code) == (404, 404)
    assert others.json()["detail"].replace("demo", "nope") == unknown.json()["detail"]


def test_what_cannot_be_undone_needs_a_reason(operator: Caller, record: Session) -> None:
    jid = planted_job(record)

    assert operator.post(f"/v1/jobs/{jid}/fail").status_code == 422
    assert operator.post(f"/v1/jobs/{jid}/fail", {"reason": ""}).status_code == 422
    assert operator.post(f"/v1/jobs/{jid}/fail", {"reason": "mistake"}).status_code == 200


def test_a_blank_reason_is_none(operator: Caller, record: Session) -> None:
    jid = planted_job(record)
    planned = operator.post("/v1/bulk/fail/dry-run", {"select": {"ids": [jid]}}).json()

    for path, body in ((f"jobs/{jid}/fail", {}), ("bulk/fail", {"token": planned["token"]})):
        assert operator.post(f"/v1/{path}", {"reason": " \n", **body}).status_code == 422

    assert jobs.load(record, jid).status.status is JobState.PENDING


def test_a_depositor_raises_no_verb(scans: Caller, record: Session) -> None:
    answer = scans.post(f"/v1/jobs/{planted_job(record, OWN)}/hold")

    assert answer.status_code == 403
    assert "needs the role operator" in answer.json()["detail"]


def test_a_batch_is_cancelled(operator: Caller, record: Session) -> None:
    bid = jobs.load(record, planted_job(record)).bid

    answer = operator.post(f"/v1/batches/{bid}/cancel", {"reason": "twice"})

    assert answer.status_code == 200
    assert [result["now"] for result in answer.json()["done"]] == ["failed"]


def test_the_queue_is_paused_and_the_action_is_listed(operator: Caller) -> None:
    paused = operator.post("/v1/queue/pause", {"reason": "maintenance"})
    started = operator.post("/v1/queue/unpause")

    assert (paused.json()["hold"]["by"], started.json()["changed"]) == ("olga", True)
    actions = operator.get("/v1/actions").json()["entries"]
    assert [(entry["action"], entry["via"]) for entry in actions[-2:]] == [
        ("pause", "api"),
        ("unpause", "api"),
    ]
    requested = [answer.headers["X-Request-ID"] for answer in (paused, started)]
    assert [entry["request_id"] for entry in actions[-2:]] == requested


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
@pytest.mark.parametrize("path", ["/v1/batches", "/v1/queue/pause", "/v1/bulk/hold/dry-run"])
def test_a_body_of_another_media_type_is_answered_415(
    operator: Caller, record: Session, media_type: str, path: str
) -> None:
    answer = operator.request("POST", path, data=b'{"reason": "x"}', headers={"Content-Type": media_type})

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
    assert "application/json" in answer.json()["detail"]
    assert holds.paused(record) is None


def test_a_misspelled_condition_selects_no_job(operator: Caller) -> None:
    answer = operator.post("/v1/bulk/delete/dry-run", {"select": {"search": {"sate": "failed"}}})

    assert answer.status_code == 422
    assert "body.select.search.sate: is no field of this request" in answer.json()["detail"]


def test_a_bulk_verb_does_exactly_what_its_dry_run_showed(operator: Caller, record: Session) -> None:
    stays, moves, ended = (planted_job(record) for _ in range(3))
    operator.post(f"/v1/jobs/{ended}/fail", {"reason": "x"})
    plan = operator.post("/v1/bulk/hold/dry-run", {"select": {"ids": [stays, moves, ended]}}).json()
    assert (plan["jobs"], [refusal["id"] for refusal in plan["refused"]]) == (2, [ended])
    operator.post(f"/v1/jobs/{moves}/hold")

    receipt = operator.post("/v1/bulk/hold", {"token": plan["token"], "reason": "together"}).json()
    again = operator.post("/v1/bulk/hold", {"token": plan["token"]})

    assert [result["id"] for result in receipt["done"]] == [stays]
    assert [refusal["id"] for refusal in receipt["moved"]] == [moves]
    # the token may be sent again: it names the versions that the dry run showed, and both jobs have moved
    assert (again.status_code, again.json()["done"]) == (200, [])
    assert sorted(refusal["id"] for refusal in again.json()["moved"]) == sorted([stays, moves])


def test_a_list_is_read_page_by_page(web: Web, operator: Caller, record: Session) -> None:
    planted = {planted_job(record) for _ in range(3)}
    last = max(planted)
    while not operator.get("/v1/jobs", params={"q": last}).json()["rows"]:
        web.context.board.wait_change(web.context.board.changes_since(None).last, 0.1)

    first = operator.get("/v1/jobs", params={"limit": 2})
    second = operator.get(first.headers["Link"].partition(">")[0].lstrip("<"))

    assert len(first.json()["rows"]) == 2
    assert first.json()["rows"][-1]["jid"] > second.json()["rows"][0]["jid"]
    assert operator.get("/v1/jobs", params={"cursor": "§"}).status_code == 422


def test_one_collection_is_as_in_the_list_and_that_of_others_is_not_there(
    web: Web, operator: Caller, record: Session
) -> None:
    planted_job(record)

    def as_listed() -> bool:
        rows = operator.get("/v1/collections").json()
        one = operator.get("/v1/collections/demo").json()
        return bool(one["jobs"]) and [row for row in rows if row["collection"] == "demo"] == [one]

    while not as_listed():
        web.context.board.wait_change(web.context.board.changes_since(None).last, 0.1)
    others = web.caller(Role.OPERATOR, ["maps"], name="omar").get("/v1/collections/demo")
    unknown = operator.get("/v1/collections/nothing")

    assert others.status_code == unknown.status_code == 404
    assert others.json()["detail"] == "there is no collection demo"
    unused = web.caller(Role.DEPOSITOR, ["demo"], name="new").get("/v1/collections/demo")
    assert unused.json() == {"collection": "demo", "jobs": {}, "batches": {}, "held": False}


def test_a_depositors_lists_have_its_own_only(web: Web, scans: Caller, record: Session) -> None:
    planted_job(record, OWN)

    for path in ("/v1/jobs", "/v1/batches"):
        assert {row["owner"] for row in scans.get(path).json()["rows"]} <= {OWN}
    assert scans.get("/v1/space").status_code == 403
    assert scans.get("/v1/queue").status_code == 403
    assert scans.get("/v1/board").status_code == 200


def test_a_stream_has_the_changes_of_what_its_caller_may_see(
    web: Web, scans: Caller, operator: Caller, record: Session
) -> None:
    with scans.get("/v1/events", stream=True) as stream:
        lines = stream.iter_lines(decode_unicode=True)
        assert "event: open" in [next(lines) for _ in range(4)]
        hidden, shown = planted_job(record), planted_job(record, OWN)

        data = next(line for line in lines if line.startswith("data:") and shown in line)

    assert json.loads(data.removeprefix("data: "))["state"] == "pending"
    assert hidden not in data
    assert "owner" not in data


def test_a_stream_continues_after_the_last_event(operator: Caller, web: Web, record: Session) -> None:
    before = web.context.board.changes_since(None).last
    jid = planted_job(record)
    assert web.context.board.wait_change(before, 10)

    with operator.get("/v1/events", stream=True, headers={"Last-Event-ID": before}) as stream:
        lines = stream.iter_lines(decode_unicode=True)
        assert f"id: {before}" in list(
            islice(lines, 3)
        )  # a client that is cut off now asks for the same again
        assert next(line for line in lines if jid in line)
    with operator.get("/v1/events", stream=True, headers={"Last-Event-ID": "other.7"}) as stream:
        assert "event: reset" in islice(stream.iter_lines(decode_unicode=True), 3)


def test_a_method_that_a_path_lacks_is_answered_with_all_that_it_has(operator: Caller) -> None:
    refused = operator.request("PUT", "/v1/batches")

    assert (refused.status_code, refused.json()["code"]) == (405, "method-not-allowed")
    assert refused.headers["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "path", ["/", "/objects", "/login", "/v1/batches", "/v1/jobs/jid9999999999", "/docs"]
)
def test_head_has_the_headers_of_get_and_no_body(web: Web, operator: Caller, path: str) -> None:
    same = ("Content-Type", "Content-Length", "Content-Security-Policy", "Cache-Control")

    answer, got = operator.request("HEAD", path), operator.get(path, allow_redirects=False)

    assert answer.status_code == got.status_code != 405
    assert [answer.headers.get(name) for name in same] == [got.headers.get(name) for name in same]
    assert not answer.content


def test_head_is_counted_by_its_name(web: Web, operator: Caller) -> None:
    operator.request("HEAD", "/v1/stops")

    counted = b'code="200",method="HEAD",route="/v1/stops"'  # after the answer, which ends with its head
    eventually(lambda: counted in web.context.requests.exposition())


def test_head_of_a_stream_ends_and_leaves_no_stream_open(web: Web, operator: Caller) -> None:
    with requests.Session() as connection:
        connection.headers["Authorization"] = f"Bearer {operator.token}"
        for path in ("/v1/events", "/live/board", "/v1/events"):
            answer = connection.head(f"{web.url}{path}", timeout=30)
            assert (answer.status_code, answer.headers["Content-Type"][:17]) == (200, "text/event-stream")

    assert web.caller(Role.VIEWER, name="vic").request("HEAD", "/v1/actions").status_code == 200
    assert web.anybody.request("HEAD", "/v1/jobs").status_code == 401
    eventually(lambda: web.context.streams.number == 0)


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/jobs/{}", 404),
        ("GET", "/batches/{}", 404),
        ("GET", "/batches/{}/again", 404),
        ("GET", "/v1/collections/{}/actions", 404),
        ("POST", "/v1/collections/{}/hold", 422),
    ],
)
def test_a_name_that_is_a_place_in_a_path_is_no_fault_of_the_server(
    web: Web, operator: Caller, method: str, path: str, status: int, name: str
) -> None:
    connection = http.client.HTTPConnection(urlsplit(web.url).netloc, timeout=30)  # others shorten the path
    connection.request(method, path.format(name), headers={"Authorization": f"Bearer {operator.token}"})

    answer = connection.getresponse()

    connection.close()
    assert answer.status == status


def test_a_page_of_objects_after_a_number_beyond_the_keys_of_the_database_is_refused(
    operator: Caller,
) -> None:
    assert operator.get(f"/objects?after={10**18 - 1}").status_code == 200
    assert operator.get(f"/objects?after={10**18}").status_code == 422


def test_a_text_in_place_of_a_list_is_refused_in_the_words_of_json(operator: Caller) -> None:
    body = {"profile": "demo", "payload_url": "https://example.org/a.txt", "local_id": "MUE-003"}

    assert operator.post("/v1/batches", json=body).json()["detail"] == "body.local_id: Input should be a list"


def test_the_report_is_json_html_or_csv(operator: Caller, record: Session) -> None:
    path = f"/v1/batches/{jobs.load(record, planted_job(record)).bid}/report"

    assert operator.get(path).json()["bid"]
    assert operator.get(path, headers={"Accept": "text/csv"}).text.startswith(
        '\ufeff"object","local id","ARK"'
    )
    assert "<html" in operator.get(path, params={"form": "html"}).text


def test_a_request_above_the_limit_is_answered_429(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = web.caller(Role.VIEWER, name="busy")
    monkeypatch.setitem(vars(web.context), "rate_limit", RateLimit(2))

    codes = [busy.get("/v1").status_code for _ in range(3)]

    assert codes == [200, 200, 429]
    assert 1 <= int(busy.get("/v1").headers["Retry-After"]) <= 60


def test_streams_beyond_the_limit_are_refused(
    web: Web, operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web.context.streams, "_limit", 0)

    answer = operator.get("/v1/events")

    assert (answer.status_code, answer.json()["code"]) == (503, "too-many-streams")
    assert answer.headers["Retry-After"]


def test_a_token_that_opens_many_streams_leaves_room_for_others(
    web: Web, operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web.context.streams, "_limit_of_token", 2)
    greedy = web.caller(Role.VIEWER, name="greedy")
    with ExitStack() as opened:
        streams = [opened.enter_context(greedy.get("/v1/events", stream=True)) for _ in range(2)]
        lines = [stream.iter_lines(chunk_size=1) for stream in streams]
        assert [next(of_stream)[:6] for of_stream in lines] == [b"retry:"] * 2

        refused = greedy.get("/v1/events")

        assert (refused.status_code, refused.json()["code"]) == (503, "too-many-streams")
        assert "greedy has 2 streams open" in refused.json()["detail"]
        with operator.get("/v1/events", stream=True) as other:
            assert other.status_code == 200


@pytest.mark.parametrize("path", ["/v1/events", "/live/board"])
def test_an_open_stream_ends_when_its_token_is_revoked(
    web: Web, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_streams, "VALID_SECONDS", 0.1)
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    for module in (of_streams, streaming):
        monkeypatch.setattr(module, "HEARTBEAT", 0.2)
    name = f"leaver-{path.rpartition('/')[2]}"
    leaver = web.caller(Role.VIEWER, name=name)
    with leaver.get(path, stream=True) as stream:
        lines = stream.iter_lines(chunk_size=1, decode_unicode=True)
        assert next(lines).startswith("retry:")

        revoke_token(web.context.tokens(), name, "ann", now())

        *_, event, data, _ = lines
    assert event == "event: unauthorized"
    assert "was revoked" in data


def test_a_stream_continues_while_the_inventory_does_not_answer_for_its_caller() -> None:
    """Nothing is revoked in an inventory that does not answer."""

    def silent() -> None:
        raise ServiceUnreachable("the inventory does not answer")

    async def parts() -> AsyncGenerator[bytes]:
        yield b"one"
        yield b"two"

    async def read() -> list[bytes]:
        stream = EventStream(Streams(), "ann", silent, lambda: Opening(lambda: None, parts()))
        return [part async for part in stream._while_valid(parts())]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_streams, "VALID_SECONDS", 0.0)
        assert asyncio.run(read()) == [b"one", b"two"]


def test_an_operator_of_one_collection_does_not_learn_which_others_there_are(web: Web) -> None:
    scans = web.caller(Role.OPERATOR, ["scans"], name="scans-only")
    for method, path in (("POST", "hold"), ("POST", "release"), ("GET", "actions"), ("GET", "profile")):
        body: dict[str, str] | None = {} if method == "POST" else None
        answers = {
            scans.request(method, f"/v1/collections/{name}/{path}", json=body).status_code
            for name in ("demo", "no-such-collection")
        }
        assert answers == {403}, path


def test_streams_that_are_opened_at_the_same_moment_do_not_exceed_the_limit() -> None:
    streams = Streams(limit=1)

    with (
        streams.entered(lambda: None, "ann"),
        raises_code(codes.TOO_MANY_STREAMS),
        streams.entered(print, "bob"),
    ):
        pass
    assert streams.number == 0


def test_an_object_that_does_not_exist_is_answered_404(operator: Caller) -> None:
    assert operator.get("/v1/objects/ark:/99999/fk4nothing").status_code == 404


def test_why_names_the_damaged_znode_to_who_sees_every_collection(
    web: Web, operator: Caller, record: Session
) -> None:
    jid = planted_job(record)
    status = record.get(paths.job_status(jid))[0]
    record.zk.set(paths.job_status(jid), b"{")

    told = operator.get(f"/v1/jobs/{jid}/why").json()
    refused = web.caller(Role.OPERATOR, ["demo"], name="why-of-demo").get(f"/v1/jobs/{jid}/why")

    assert (told["reason"], told["remedies"][0]["action"]) == ("record-damaged", "repair")
    assert refused.status_code == 500
    record.zk.set(paths.job_status(jid), status)


def test_a_damaged_job_is_repaired_by_an_operator_of_all_collections(
    web: Web, operator: Caller, record: Session
) -> None:
    jid = planted_job(record)
    path = f"/v1/jobs/{jid}/repair"
    assert operator.post(path).status_code == 422
    record.zk.set(paths.job_status(jid), b"{")
    assert web.caller(Role.OPERATOR, ["demo"], name="of-demo").post(path).status_code == 403

    repaired = operator.post(path, {"reason": "a disk lost it"})

    assert repaired.status_code == 200, repaired.text
    assert (repaired.json()["was"], repaired.json()["now"]) == ("unreadable", "failed")
    assert jobs.load(record, jid).status.status is JobState.FAILED


def test_a_clean_up_is_a_dry_run_unless_the_caller_says_otherwise(web: Web, operator: Caller) -> None:
    working = web.context.settings.working
    assert operator.post("/v1/space/clean-up").status_code == 422  # working storage is not here yet
    mount.mark(working)

    dry = operator.post("/v1/space/clean-up").json()
    assert dry["dry_run"]
    done = operator.post("/v1/space/clean-up", {"dry_run": False, "reason": "tidy"})

    assert done.status_code == 200, done.text
    assert not done.json()["dry_run"]
    assert operator.get("/v1/actions").json()["entries"][-1]["action"] == "clean-up"


def test_the_report_of_the_fixity_schedule_is_for_those_who_see_every_collection(
    web: Web, operator: Caller, scans: Caller
) -> None:
    assert operator.get("/v1/fixity").json()["counts"]["damaged"] == 0
    assert scans.get("/v1/fixity").status_code == 403
