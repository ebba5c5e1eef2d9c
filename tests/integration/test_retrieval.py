"""Download of stored files: what is sent is what was stored, to those who may have it, and is an event."""

import base64
import hashlib
import io
import os
import re
import socket
import sqlite3
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlsplit

import bagit
import pytest
import requests
from PIL import Image
from requests.exceptions import ChunkedEncodingError, ConnectionError
from sqlalchemy import QueuePool

from entrypoints.cli import exit_codes
from entrypoints.web import limits
from entrypoints.web.retrieval import RETRIEVALS_OF_ONE
from operations import tokens
from operations.objects.objects import dissemination
from pipeline.attempt import UNATTENDED
from pipeline.description import premis
from pipeline.fixity import READ_CHUNK
from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.database import _engines
from pipeline.inventory.description import DISSEMINATION, FAIL, FIXITY_CHECK, PASS
from pipeline.preservation.fixity import Pace
from pipeline.principal import Role
from pipeline.records import Job
from pipeline.settings import Settings
from tasks import stores
from tasks.app import make_context
from tests.support import cli, planting
from tests.support.polling import eventually
from tests.support.repository import Repository, empty_inventory
from tests.support.stores import Store, flip
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.record import batches

BIG = "0123456789abcdef" * (1 << 17)
HUGE = "harbour " * (1 << 22)
ODD = 'Schöne "Häuser"; 100%\'s.txt'
FILES = {
    "a.txt": "alpha",
    "empty.txt": "",
    "big.txt": BIG,
    "huge.txt": HUGE,
    "damaged.txt": "damaged",
    "damaged big.txt": BIG + "!",
    f"folder/{ODD}": "odd",
    "x/versions/2/files/a.txt": "nested",
}


@pytest.fixture(scope="module")
def store(
    module_settings: Settings, record: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    repository = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    yield Store(repository)
    repository.close()


def deposited(record: Session, store: Store, files: Mapping[str, str | bytes]) -> Job:
    """A job of the depositor `scans` whose files are downloaded."""
    batch = planting.acquired_batch(record, owner="token:scans")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    jid = batches.all_jobs(record, batch.bid)[0]
    return store.repository.job(int(jid[3:]), files, batch_id=batch.bid)


@pytest.fixture(scope="module")
def ark(record: Session, store: Store) -> str:
    """An object of the depositor `scans`, two of whose files are damaged."""
    version = store.repository.recorded(deposited(record, store, FILES))
    for name in ("damaged.txt", "damaged big.txt"):
        store.change(version.ark, f"v1/content/producer/{name}", flip)
    return version.ark


@pytest.fixture(scope="module")
def web(module_settings: Settings, ark: str, whole: str, markup: str) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def scans(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, name="scans")


def path_of(ark: str, name: str, version: str = "1") -> str:
    return f"/v1/objects/{ark}/versions/{version}/files/producer/{quote(name)}"


def events(web: Web, ark: str, kind: str = DISSEMINATION) -> list[PreservationEvent]:
    """Those in the inventory, once nothing waits to be entered."""
    web.context.events.close()
    return [event for event in web.context.site.inventory().events_of(ark) if event.type == kind]


def prove_what_was_asked(web: Web) -> None:
    """The next proofs of a worker."""
    worker = make_context(web.context.settings)
    worker.app.tasks["beat.proofs"]()
    worker.drop_session()


@pytest.mark.parametrize("name", [name for name in FILES if "damaged" not in name])
@pytest.mark.parametrize("version", ["1", "current"])
def test_a_file_is_sent_as_it_was_stored(scans: Caller, ark: str, name: str, version: str) -> None:
    answer = scans.get(path_of(ark, name, version))

    data = FILES[name].encode()
    digest = hashlib.sha512(data)
    assert answer.status_code == 200, answer.text
    assert answer.content == data
    assert answer.headers["Content-Length"] == str(len(data))
    assert answer.headers["ETag"] == f'"{digest.hexdigest()}"'
    assert answer.headers["Repr-Digest"] == f"sha-512=:{base64.b64encode(digest.digest()).decode()}:"
    assert answer.headers["Content-Type"] == "text/plain"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"].startswith("attachment; ")


def test_the_name_of_a_download_is_the_name_of_the_file(scans: Caller, ark: str) -> None:
    disposition = scans.get(path_of(ark, f"folder/{ODD}")).headers["Content-Disposition"]

    assert disposition == (
        'attachment; filename="Sch_ne _H_user_; 100_\'s.txt"; '
        "filename*=UTF-8''Sch%C3%B6ne%20%22H%C3%A4user%22%3B%20100%25%27s.txt"
    )


RANGES = [
    ("bytes=0-0", (0, 1)),
    ("bytes=5-1999999", (5, 2000000)),
    ("bytes=1999990-", (1999990, len(BIG))),
    ("bytes=-7", (len(BIG) - 7, len(BIG))),
    (f"bytes={READ_CHUNK}-99999999999", (READ_CHUNK, len(BIG))),
]


@pytest.mark.parametrize(("text", "span"), RANGES)
def test_a_range_is_sent_with_its_place(scans: Caller, whole: str, text: str, span: tuple[int, int]) -> None:
    answer = scans.get(path_of(whole, "big.txt"), headers={"Range": text})

    start, end = span
    assert answer.status_code == 206, answer.text
    assert answer.text == BIG[start:end]
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(BIG)}"
    assert answer.headers["Repr-Digest"].startswith("sha-512=")


@pytest.mark.parametrize("text", ["bytes=0-", "bytes=3-1", "bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes"])
def test_what_is_no_single_part_is_the_whole_file(scans: Caller, whole: str, text: str) -> None:
    answer = scans.get(path_of(whole, "big.txt"), headers={"Range": text})

    assert (answer.status_code, answer.text) == (200, BIG)


@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "bytes=5-"), ("a.txt", "bytes=-0"), ("empty.txt", "bytes=0-")]
)
def test_a_range_beyond_the_end_is_refused_with_the_size(
    scans: Caller, whole: str, name: str, text: str
) -> None:
    answer = scans.get(path_of(whole, name), headers={"Range": text})

    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{len(FILES[name])}"
    assert answer.json()["code"] == "range-not-satisfiable"


def test_a_range_is_of_the_file_that_the_client_has_the_beginning_of(scans: Caller, whole: str) -> None:
    path = path_of(whole, "a.txt")
    etag = scans.get(path).headers["ETag"]

    same = scans.get(path, headers={"Range": "bytes=1-2", "If-Range": etag})
    other = scans.get(path, headers={"Range": "bytes=1-2", "If-Range": '"0"'})

    assert (same.status_code, same.text) == (206, "lp")
    assert (other.status_code, other.text) == (200, "alpha")


def test_a_file_that_the_client_has_is_not_sent_again(scans: Caller, ark: str) -> None:
    path = path_of(ark, "a.txt")
    etag = scans.get(path).headers["ETag"]

    for tags in (etag, f'"0", {etag}', f"W/{etag}", "*"):
        answer = scans.get(path, headers={"If-None-Match": tags})
        assert (answer.status_code, answer.content) == (304, b"")
    assert scans.get(path, headers={"If-None-Match": '"0"'}).status_code == 200


def test_head_has_size_and_etag_of_a_file_without_reading_it_or_an_event(
    web: Web, record: Session, store: Store, scans: Caller
) -> None:
    damaged = store.repository.recorded(deposited(record, store, {"a.txt": "alpha"})).ark
    store.change(damaged, "v1/content/producer/a.txt", flip)

    answer = scans.request("HEAD", path_of(damaged, "a.txt"), headers={"Range": "bytes=1-2"})
    absent = scans.request("HEAD", path_of(damaged, "b.txt"))

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Length"] == "5"
    assert answer.headers["ETag"] == f'"{hashlib.sha512(b"alpha").hexdigest()}"'
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert absent.status_code == 404
    assert events(web, damaged) == []


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/v1"])
def test_head_is_answered_as_get_without_a_body(scans: Caller, path: str) -> None:
    answer = scans.request("HEAD", path)

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(scans.get(path).content))


def test_what_does_not_exist_is_missing(scans: Caller, ark: str) -> None:
    for path in (
        path_of(ark, "b.txt"),
        path_of(ark, "a.txt", "2"),
        path_of("ark:/99999/fk4nothing", "a.txt"),
        f"/v1/objects/{ark}/versions/1/files/producer/../producer/a.txt",
    ):
        with requests.Session() as session:
            bearer = {"Authorization": f"Bearer {scans.token}"}
            prepared = session.prepare_request(requests.Request("GET", scans.url, headers=bearer))
            prepared.url = scans.url + path
            assert session.send(prepared, timeout=30).status_code == 404, path


def test_damage_before_the_first_byte_is_a_problem(web: Web, scans: Caller, ark: str) -> None:
    answer = scans.get(path_of(ark, "damaged.txt"))

    assert answer.status_code == 500
    assert answer.json()["code"] == "damaged-object"
    assert "damaged.txt" in answer.json()["detail"]


def test_damage_ends_the_transfer_before_its_end_and_raises_the_alarm(
    web: Web, scans: Caller, ark: str
) -> None:
    with pytest.raises((ChunkedEncodingError, ConnectionError)):
        scans.get(path_of(ark, "damaged big.txt"))

    refused = [event for event in events(web, ark) if event.outcome == FAIL]
    assert any("damaged big.txt" in event.note for event in refused)
    proof = web.context.site.inventory()
    prove_what_was_asked(web)
    (alarm,) = events(web, ark, FIXITY_CHECK)
    assert alarm.outcome == FAIL
    assert {file.path for file in alarm.files} == {"producer/damaged.txt", "producer/damaged big.txt"}
    assert proof.describe_object(ark).fixity.damaged == 2  # type: ignore[union-attr]


BESIDE = {
    "verify": ("object", "{}"),
    "export": ("export", "{}", "--output", "a-bag"),
    "download": ("object", "{}", "--file", "producer/a.txt"),
}


@pytest.mark.parametrize("reader", [*BESIDE, "API"])
def test_damage_that_any_reader_meets_raises_the_alarm_at_once(
    web: Web, record: Session, store: Store, scans: Caller, reader: str
) -> None:
    damaged = store.repository.recorded(deposited(record, store, {"a.txt": "alpha"})).ark
    store.change(damaged, "v1/content/producer/a.txt", flip)

    if reader in BESIDE:
        command = [part.format(damaged) for part in BESIDE[reader]]
        assert cli.run(web.context.settings, *command).code == exit_codes.BROKEN_CUSTODY
    else:
        assert not scans.get(f"/v1/objects/{damaged}/custody").json()["custody"]["agrees"]
        web.context.events.close()  # waits until the check is asked for

    prove_what_was_asked(web)
    (alarm,) = events(web, damaged, FIXITY_CHECK)
    assert ([file.path for file in alarm.files], alarm.outcome) == (["producer/a.txt"], FAIL)


def test_reading_a_restored_object_as_stored_has_a_worker_end_the_alarm(
    web: Web, record: Session, store: Store
) -> None:
    restored = store.repository.recorded(deposited(record, store, {"a.txt": "alpha"})).ark
    store.change(restored, "v1/content/producer/a.txt", flip)
    store.schedule().check(restored, Pace(0))
    store.change(restored, "v1/content/producer/a.txt", flip)

    assert cli.run(web.context.settings, "object", restored).code == 0

    prove_what_was_asked(web)
    assert [event.outcome for event in events(web, restored, FIXITY_CHECK)] == [FAIL, "pass"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("bytes", "Storage does not have the bytes that were stored"),
        ("inventory", "Storage has the bytes that were stored, but the inventory says otherwise"),
        ("description", "the files in which storage describes the object are damaged"),
    ],
)
def test_the_page_says_where_the_damage_that_a_proof_found_is(
    web: Web, record: Session, store: Store, scans: Caller, wrong: str, says: str
) -> None:
    damaged = store.repository.recorded(deposited(record, store, {"a.txt": "alpha"})).ark
    if wrong == "inventory":
        change = (
            "UPDATE inv_files SET full_size = 7 WHERE pathname = 'producer/a.txt' AND inv_object_id = "
            f"(SELECT id FROM inv_objects WHERE ark = '{damaged}')"
        )
        web.context.site.inventory().database.write(lambda connection: connection.exec_driver_sql(change))
    else:
        path = "inventory.json.sha512" if wrong == "description" else "v1/content/producer/a.txt"
        store.change(damaged, path, flip)
    assert scans.post(f"/v1/objects/{damaged}/proofs", json={}).status_code == 202

    prove_what_was_asked(web)

    assert says in scans.get(f"/objects/{damaged}").text


def test_of_a_damaged_object_no_range_is_sent_and_no_proof_is_claimed(
    web: Web, record: Session, store: Store, scans: Caller
) -> None:
    """... but whole files, which are compared."""
    damaged = store.repository.recorded(deposited(record, store, {"a.txt": "alpha", "b.txt": "beta"})).ark
    store.change(damaged, "v1/content/producer/a.txt", flip)
    part = {"Range": "bytes=0-1"}
    assert scans.get(f"/v1/objects/{damaged}/versions/1/files/producer/a.txt").status_code == 500

    prove_what_was_asked(web)
    broken, sound = (scans.get(path_of(damaged, name), headers=part) for name in ("a.txt", "b.txt"))

    assert (broken.status_code, broken.json()["code"]) == (500, "damaged-object")
    assert (sound.status_code, sound.text, sound.headers.get("Arkline-Last-Proof")) == (200, "beta", None)


@pytest.mark.parametrize("document", ["/v1/objects/{ark}/premis", "/v1/jobs/{jid}/premis"])
def test_damage_of_the_events_of_a_version_raises_the_alarm_when_the_document_is_read(
    web: Web, record: Session, store: Store, scans: Caller, document: str
) -> None:
    job = deposited(record, store, {"a.txt": "alpha"})
    ark = store.repository.recorded(job).ark
    store.change(ark, f"v1/content/system/{premis.NAME}", flip)

    assert scans.get(document.format(ark=ark, jid=job.jid)).status_code == 200

    prove_what_was_asked(web)
    (alarm,) = events(web, ark, FIXITY_CHECK)
    assert ([file.path for file in alarm.files], alarm.outcome) == ([f"system/{premis.NAME}"], FAIL)


def test_a_client_that_reads_slowly_holds_no_thread_and_no_connection(
    web: Web, scans: Caller, ark: str
) -> None:
    with closing(reading(web, scans, path_of(ark, "huge.txt"))) as slow:
        eventually(lambda: web.context.retrievals.number == 1)
        answers = [scans.get(path_of(ark, "a.txt")).text for _ in range(2 * RETRIEVALS_OF_ONE)]

        assert set(answers) == {"alpha"}
        assert web.context.retrieval_work.running == 0
        eventually(lambda: not any(pool.checkedout() for pool in pools()))
        rest = b""
        while piece := slow.recv(1 << 20):
            rest += piece
    assert rest.endswith(HUGE[-1000:].encode())
    eventually(lambda: web.context.retrievals.number == 0)


def test_a_download_is_not_cut_while_the_inventory_is_away(
    web: Web, scans: Caller, ark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VALID_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    stores.compare(web.context.session, web.context.settings)  # a missing inventory is not made again
    inventory, away = (web.context.settings.data / name for name in ("inventory.sqlite", "away"))
    rest = b""
    with closing(reading(web, scans, path_of(ark, "huge.txt"))) as slow:
        inventory.rename(away)
        try:
            while piece := slow.recv(1 << 20):
                rest += piece
        finally:
            away.rename(inventory)

    assert rest.endswith(HUGE.encode())


def pools() -> list[QueuePool]:
    """Of connections to databases."""
    opened = [one.engine.pool for one in _engines.values()]
    assert opened
    return [pool for pool in opened if isinstance(pool, QueuePool)]


def reading(web: Web, caller: Caller, path: str) -> socket.socket:
    """A connection that has taken the first byte of the answer."""
    address = urlsplit(web.url)
    connection = socket.create_connection((address.hostname or "", address.port or 80), 30)
    request = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {caller.token}\r\n"
    connection.sendall(f"{request}Connection: close\r\n\r\n".encode())
    assert connection.recv(1)
    return connection


def test_a_client_that_left_leaves_its_place(web: Web, scans: Caller, ark: str) -> None:
    reading(web, scans, path_of(ark, "huge.txt")).close()

    eventually(lambda: web.context.retrievals.number == 0)


def test_one_caller_leaves_places_for_others(web: Web, scans: Caller, ark: str) -> None:
    held = [reading(web, scans, path_of(ark, "huge.txt")) for _ in range(RETRIEVALS_OF_ONE)]
    try:
        refused = scans.get(path_of(ark, "a.txt"))
        served = web.caller(Role.VIEWER, name="another").get(path_of(ark, "a.txt"))
    finally:
        for connection in held:
            connection.close()

    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-retrievals")
    assert int(refused.headers["Retry-After"]) > 0
    assert served.text == "alpha"
    eventually(lambda: web.context.retrievals.number == 0)


def test_a_series_of_ranges_is_one_event_of_who_got_what(web: Web, ark: str) -> None:
    viewer = web.caller(Role.VIEWER, name="reader-of-ranges")
    for start in range(3):
        viewer.get(path_of(ark, "big.txt"), headers={"Range": f"bytes={start}-{start}"})
    viewer.get(path_of(ark, "a.txt"))
    viewer.get(path_of(ark, "a.txt"), headers={"Range": "bytes=9-"})

    own = [event for event in events(web, ark) if event.agent == "arkline reader-of-ranges"]
    assert [(event.outcome, event.version, event.note) for event in own] == [
        (PASS, 1, "the file producer/big.txt"),
        (PASS, 1, "the file producer/a.txt"),
    ]
    assert "version 1: the file producer/big.txt" in viewer.get(f"/v1/objects/{ark}/premis").text


def test_a_file_is_sent_while_the_inventory_takes_no_entry_and_the_event_is_entered_later(
    web: Web, ark: str
) -> None:
    viewer = web.caller(Role.VIEWER, name="patient")
    assert viewer.get("/v1").ok  # the use of the token is entered

    def entered() -> bool:
        return any(event.agent == "arkline patient" for event in web.context.site.inventory().events_of(ark))

    with closing(sqlite3.connect(web.context.settings.data / "inventory.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = viewer.get(path_of(ark, "a.txt"))
        assert not entered()
        other.rollback()

    assert answer.text == "alpha"
    eventually(entered)


def test_files_are_for_those_who_may_see_the_object(web: Web, scans: Caller, ark: str) -> None:
    path = path_of(ark, "a.txt")
    for caller in (
        scans,
        web.caller(Role.VIEWER, ["demo"], name="viewer-here"),
        web.caller(Role.OPERATOR, ["demo"], name="operator-here"),
    ):
        assert caller.get(path).text == "alpha"
    for caller in (
        web.caller(Role.DEPOSITOR, ["demo"], name="maps"),
        web.caller(Role.VIEWER, ["other"], name="viewer-elsewhere"),
        web.caller(Role.OPERATOR, ["other"], name="operator-elsewhere"),
    ):
        assert caller.get(path).status_code == 404
    assert web.anybody.get(path).status_code == 401


@pytest.fixture(scope="module")
def whole(record: Session, store: Store) -> str:
    """An object of `scans` without damage."""
    return store.repository.recorded(deposited(record, store, WHOLE)).ark


WHOLE = {name: text for name, text in FILES.items() if "damaged" not in name and "%" not in name} | {
    "x" * 200 + ".txt": "long",
    'Schöne "Häuser".txt': "umlauts",
}


def unpacked(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_a_bag_is_valid_by_an_independent_validator(web: Web, whole: str, tmp_path: Path) -> None:
    validator = web.caller(Role.VIEWER, name="validator")
    answer = validator.get(f"/v1/objects/{whole}/versions/current/bag")

    assert answer.headers["Content-Length"] == str(len(answer.content))
    name = answer.headers["Content-Disposition"].split('"')[1].removesuffix(".tar")
    subprocess.run(["tar", "-xf", "-", "-C", tmp_path], input=answer.content, check=True)
    bag = bagit.Bag(str(tmp_path / name))
    bag.validate()
    assert unpacked(tmp_path / name / "data" / "producer") == WHOLE
    assert bag.info["External-Identifier"] == whole
    (event,) = [one for one in events(web, whole) if one.agent == "arkline validator"]
    assert f"{whole} dissemination {event.at.isoformat()}" in unpacked(tmp_path / name)["metadata/premis.xml"]


def test_a_bag_that_was_cut_continues_as_one_event(web: Web, scans: Caller, whole: str) -> None:
    path = f"/v1/objects/{whole}/versions/1/bag"
    first = scans.get(path)
    begun = len(events(web, whole))
    web.context.site.inventory().enter_export(dissemination(whole, 1, "ben", "a file"))  # meanwhile
    rest = {"Range": f"bytes={len(first.content) // 2}-", "If-Range": first.headers["ETag"]}

    second = scans.get(path, headers=rest)

    assert second.status_code == 206, second.text
    assert second.content == first.content[len(first.content) // 2 :]
    size = len(first.content)
    assert second.headers["Content-Range"] == f"bytes {size // 2}-{size - 1}/{size}"
    assert second.headers["ETag"] == first.headers["ETag"]
    assert len(events(web, whole)) == begun + 1  # only that of the file


@pytest.mark.parametrize(
    "if_range", [None, '"0"', '"2026-11-27T10:00:00_x"', '"2026-11-27T10:00:00+00:00_x"']
)
@pytest.mark.parametrize("asked", ["bytes=700-", "bytes=0-", "bytes=700-800", "bytes=99999999-"])
def test_what_is_no_rest_of_the_same_bag_is_a_whole_new_one(
    scans: Caller, whole: str, if_range: str | None, asked: str
) -> None:
    headers = {"Range": asked} | ({"If-Range": if_range} if if_range else {})

    answer = scans.get(f"/v1/objects/{whole}/versions/1/bag", headers=headers)

    assert answer.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        assert len(archive.getnames()) > len(WHOLE)


def test_a_bag_does_not_continue_once_damage_was_found(
    web: Web, record: Session, store: Store, scans: Caller
) -> None:
    damaged = store.repository.recorded(deposited(record, store, WHOLE)).ark
    path = f"/v1/objects/{damaged}/versions/1/bag"
    first = scans.get(path)
    damage = replace(dissemination(damaged, 1, "ben", "damaged"), outcome=FAIL, damaged=1)
    web.context.site.inventory().enter_export(damage)

    second = scans.get(path, headers={"Range": "bytes=700-", "If-Range": first.headers["ETag"]})

    assert second.status_code == 200
    assert second.headers["ETag"] != first.headers["ETag"]


def test_a_zip_has_the_deposited_files(scans: Caller, whole: str, tmp_path: Path) -> None:
    answer = scans.get(f"/v1/objects/{whole}/versions/1/zip")

    assert answer.headers["Content-Length"] == str(len(answer.content))
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_STORED}
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert unpacked(folder) == WHOLE


@pytest.mark.parametrize("kind", ["zip", "bag"])
def test_head_describes_an_archive_and_is_no_event(web: Web, scans: Caller, whole: str, kind: str) -> None:
    path = f"/v1/objects/{whole}/versions/1/{kind}"
    before = events(web, whole)

    answer = scans.request("HEAD", path, headers={"Range": "bytes=100-"})

    assert events(web, whole) == before
    got = scans.get(path)
    same = ("Content-Type", "Content-Disposition", "Content-Length")
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in same} == {name: got.headers[name] for name in same}
    assert scans.request("HEAD", path.replace("/1/", "/7/")).status_code == 404


@pytest.mark.parametrize("kind", ["zip", "bag"])
def test_a_damaged_file_ends_an_archive_before_its_end(web: Web, scans: Caller, ark: str, kind: str) -> None:
    with pytest.raises((ChunkedEncodingError, ConnectionError)):
        scans.get(f"/v1/objects/{ark}/versions/1/{kind}")

    begun, failed = events(web, ark)[-2:]
    assert (begun.outcome, failed.outcome) == (PASS, FAIL)
    assert failed.note == begun.note
    shown = scans.get(f"/v1/objects/{ark}").json()["timeline"][-1]
    assert shown["detail"] == f"version 1: {begun.note}"
    assert "is damaged in storage" in shown["note"]


def test_the_event_of_a_damaged_file_says_which_file_was_asked_for(web: Web, scans: Caller, ark: str) -> None:
    scans.get(path_of(ark, "damaged.txt"))

    entered = events(web, ark)[-1]
    shown = scans.get(f"/v1/objects/{ark}").json()["timeline"][-1]
    assert (entered.outcome, [file.path for file in entered.files]) == (FAIL, ["producer/damaged.txt"])
    assert shown["detail"] == "version 1: the file producer/damaged.txt"
    assert "is damaged in storage" in shown["note"]


def test_the_page_of_an_object_has_its_files_in_folders_and_their_downloads(
    web: Web, scans: Caller, whole: str
) -> None:
    shown = scans.get(f"/objects/{whole}").text

    assert "<summary>Deposited files" in shown
    for address in ("zip", "bag", "files/producer/a.txt", "files/producer/x/versions/2/files/a.txt"):
        assert f'href="/v1/objects/{whole}/versions/1/{address}" download' in shown, address
    for link in re.findall(r'href="(/v1/objects/[^"]+)" download', shown):
        assert scans.get(unescape(link)).status_code == 200, link


def test_the_page_of_an_object_shows_that_a_fixity_check_failed_and_the_damage(
    record: Session, store: Store, scans: Caller
) -> None:
    damaged = store.repository.recorded(deposited(record, store, {"a.txt": "alpha"})).ark
    store.change(damaged, "v1/content/producer/a.txt", flip)
    store.schedule().check(damaged, Pace(0))

    shown = scans.get(f"/objects/{damaged}").text

    assert "fixity check <strong>fail</strong>: every file of every version" in shown
    assert "producer/a.txt of version 1: storage has 5 bytes" in shown


def test_a_preview_is_text_and_no_markup(scans: Caller, markup: str) -> None:
    shown = scans.get(f"/objects/{markup}?version=1&file=producer/page.txt").text

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "<script>alert" not in shown


def test_of_a_long_text_the_beginning_is_shown_of_an_image_the_image_and_of_others_nothing(
    web: Web, scans: Caller, markup: str
) -> None:
    page = f"/objects/{markup}?version=1&file=producer/"
    names = ("long.txt", "a.png", "a.tif", "a.zip")
    long, image, broken, other = (scans.get(f"{page}{name}").text for name in names)

    assert "b" * 65_536 in long
    assert "b" * 65_537 not in long
    assert "The first 64 kB" in long
    assert f'<img class="preview" src="/v1/objects/{markup}/versions/1/files/producer/a.png"' in image
    assert "There is no preview: it cannot be read as an image" in broken
    assert not [event for event in events(web, markup) if event.note.endswith("a.tif")]  # nothing was given
    assert "No preview for application/zip: download the file." in other
    assert scans.get(f"{page}absent.txt").status_code == 404


def test_the_frame_of_a_pdf_has_no_origin_and_only_its_page_may_have_it(
    scans: Caller, web: Web, markup: str
) -> None:
    page = scans.get(f"/objects/{markup}?version=1&file=producer/a.pdf")
    frame = web.anybody.get("/static/pdf/frame.html")

    assert "frame-src 'self'" in page.headers["Content-Security-Policy"]
    assert '<iframe class="preview" sandbox="allow-scripts"' in page.text
    assert "frame-src" not in scans.get(f"/objects/{markup}").headers["Content-Security-Policy"]
    policy = frame.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
    assert "frame-ancestors 'self'" in policy
    assert "Set-Cookie" not in frame.headers


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("archive.example:8443", "'self' http://archive.example:8443 https://archive.example:8443"),
        ("[::1]:80", "'self' http://[::1]:80 https://[::1]:80"),
        ("a; script-src *", "'self'"),
    ],
)
def test_the_frame_of_a_pdf_may_load_from_the_host_that_the_browser_names(
    web: Web, host: str, own: str
) -> None:
    """In Safari `'self'` is nothing for a frame without an origin."""
    frame = web.anybody.get("/static/pdf/frame.html", headers={"Host": host})

    policy = frame.headers["Content-Security-Policy"]
    assert f"; script-src {own} 'wasm-unsafe-eval'; worker-src blob:; style-src {own}; " in policy


@pytest.mark.parametrize("kind", ["tif", "jp2"])
def test_a_picture_is_an_event_and_its_damage_is_met_before_it_is_decoded(
    web: Web, scans: Caller, record: Session, store: Store, kind: str
) -> None:
    data = io.BytesIO()
    Image.linear_gradient("L").save(data, {"tif": "TIFF", "jp2": "JPEG2000"}[kind])
    name = f"scan.{kind}"
    job = deposited(record, store, {name: data.getvalue()})
    ark = store.repository.recorded(job).ark
    path = f"/objects/{ark}?file=producer/{name}"

    assert (
        '<img class="preview" width="256" height="256" src="data:image/webp;base64,' in scans.get(path).text
    )
    assert [event.note for event in events(web, ark)] == [f"the file producer/{name}"]
    store.change(ark, f"v1/content/producer/{name}", flip)
    assert "is damaged in storage" in scans.get(path).text
    assert events(web, ark)[-1].outcome == FAIL


def test_a_picture_removes_the_copies_that_a_killed_process_left(
    scans: Caller, record: Session, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, in_use, other = (
        tmp_path / name for name in ("arkline-preview-a", "arkline-preview-b", "arkline-c")
    )
    for path in (left, in_use, other):
        path.touch()
    for path in (left, other):
        os.utime(path, (0, 0))
    data = io.BytesIO()
    Image.linear_gradient("L").save(data, "TIFF")
    job = deposited(record, store, {"scan.tif": data.getvalue()})

    page = scans.get(f"/objects/{store.repository.recorded(job).ark}?file=producer/scan.tif").text

    assert '<img class="preview"' in page
    assert {path.name for path in tmp_path.iterdir()} == {in_use.name, other.name}


@pytest.fixture(scope="module")
def markup(record: Session, store: Store, whole: str) -> str:
    """An object of `scans` with files of several formats."""
    files = {"page.txt": "<script>alert(1)</script>", "long.txt": "b" * 70_000, "a.png": "x"} | {
        "a.tif": "x",
        "a.zip": "x",
        "a.pdf": "x",
    }
    return store.repository.recorded(deposited(record, store, files)).ark


def test_a_bag_is_exported_over_the_api_and_of_a_damaged_object_nothing_is_left(
    web: Web, scans: Caller, ark: str, whole: str, tmp_path: Path
) -> None:
    alone = web.context.settings.model_copy(update={"zk_hosts": "127.0.0.1:1", "home": tmp_path / "away"})
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": scans.token}

    done = cli.run(alone, "export", whole, "--output", "harbour", "--json", **site)
    again = cli.run(alone, "export", whole, "--output", "harbour", **site)
    damaged = cli.run(alone, "export", ark, "--output", "damaged", **site)

    assert done.code == 0, done.err
    folder = tmp_path / "away" / "harbour"
    bagit.Bag(str(folder)).validate()
    assert unpacked(folder / "data" / "producer") == WHOLE
    assert {name: done.json()[name] for name in ("ark", "version", "folder")} == {
        "ark": whole,
        "version": 1,
        "folder": "harbour",
    }
    assert (again.code, "exists" in again.err) == (2, True)
    assert damaged.code != 0
    assert [path.name for path in (tmp_path / "away").iterdir() if "damaged" in path.name] == []


def test_a_file_is_downloaded_by_the_command_line_and_a_damaged_one_leaves_nothing(
    web: Web, scans: Caller, ark: str, tmp_path: Path
) -> None:
    alone = web.context.settings.model_copy(update={"zk_hosts": "127.0.0.1:1", "home": tmp_path / "away"})
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": scans.token}

    taken = cli.run(alone, "object", ark, "--file", f"producer/folder/{ODD}", "-o", "taken.txt", **site)
    damaged = cli.run(alone, "object", ark, "--file", "producer/damaged big.txt", **site)

    assert taken.code == 0, taken.err
    assert (tmp_path / "away" / "taken.txt").read_text() == "odd"
    assert damaged.code != 0
    assert not [path for path in (tmp_path / "away").iterdir() if "damaged" in path.name]
