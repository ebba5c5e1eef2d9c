"""Download of stored files: what is sent is what was stored, to those who may have it, and is an event."""

import base64
import hashlib
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote, urlsplit

import pytest
import requests
from requests.exceptions import ChunkedEncodingError, ConnectionError
from sqlalchemy import QueuePool

from entrypoints.web.retrieval import RETRIEVALS_OF_ONE
from pipeline.attempt import UNATTENDED
from pipeline.fixity import READ_CHUNK
from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.database import _engines
from pipeline.inventory.description import DISSEMINATION, FAIL, FIXITY_CHECK, PASS
from pipeline.principal import Role
from pipeline.settings import Settings
from tasks.app import make_context
from tests.support import planting
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


@pytest.fixture(scope="module")
def ark(record: Session, store: Store) -> str:
    """An object of the depositor `scans`, two of whose files are damaged."""
    batch = planting.acquired_batch(record, owner="token:scans")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    jid = batches.all_jobs(record, batch.bid)[0]
    made = store.repository
    version = made.recorded(made.job(int(jid[3:]), FILES, batch_id=batch.bid))
    for name in ("damaged.txt", "damaged big.txt"):
        store.change(version.ark, f"v1/content/producer/{name}", flip)
    return version.ark


@pytest.fixture(scope="module")
def web(module_settings: Settings, ark: str) -> Iterator[Web]:
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
def test_a_range_is_sent_with_its_place(scans: Caller, ark: str, text: str, span: tuple[int, int]) -> None:
    answer = scans.get(path_of(ark, "big.txt"), headers={"Range": text})

    start, end = span
    assert answer.status_code == 206, answer.text
    assert answer.text == BIG[start:end]
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(BIG)}"
    assert answer.headers["Repr-Digest"].startswith("sha-512=")


@pytest.mark.parametrize("text", ["bytes=0-", "bytes=3-1", "bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes"])
def test_what_is_no_single_part_is_the_whole_file(scans: Caller, ark: str, text: str) -> None:
    answer = scans.get(path_of(ark, "big.txt"), headers={"Range": text})

    assert (answer.status_code, answer.text) == (200, BIG)


@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "bytes=5-"), ("a.txt", "bytes=-0"), ("empty.txt", "bytes=0-")]
)
def test_a_range_beyond_the_end_is_refused_with_the_size(
    scans: Caller, ark: str, name: str, text: str
) -> None:
    answer = scans.get(path_of(ark, name), headers={"Range": text})

    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{len(FILES[name])}"
    assert answer.json()["code"] == "range-not-satisfiable"


def test_a_range_is_of_the_file_that_the_client_has_the_beginning_of(scans: Caller, ark: str) -> None:
    path = path_of(ark, "a.txt")
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
    worker = make_context(web.context.settings)
    worker.app.tasks["beat.proofs"]()
    worker.drop_session()
    (alarm,) = events(web, ark, FIXITY_CHECK)
    assert alarm.outcome == FAIL
    assert {file.path for file in alarm.files} == {"producer/damaged.txt", "producer/damaged big.txt"}
    assert proof.describe_object(ark).fixity.damaged == 2  # type: ignore[union-attr]


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
