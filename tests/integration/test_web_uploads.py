"""Uploads over HTTP, by a real server: what stays, what does not, and who sees it."""

import base64
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from operations import tokens
from pipeline.inventory.tokens import revoke_token
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from tasks import stores
from tests.support.log_entries import log_entries
from tests.support.polling import eventually
from tests.support.web import Caller, Web, parts_of_uploads, serving

DATA = b"lighthouse" * 200_000


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings.model_copy(update={"upload_bytes": 5_000_000})) as running:
        yield running


@pytest.fixture(scope="module")
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


def repr_digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def stored(web: Web) -> list[Path]:
    """The folders of uploads."""
    return [path.parent for path in web.context.settings.uploads_folder.glob("*/*/upload.json")]


def test_a_file_is_uploaded_by_one_request_and_its_digest_is_answered(web: Web, ada: Caller) -> None:
    answer = ada.request(
        "POST", "/v1/uploads?name=a.jpg", data=DATA, headers={"Repr-Digest": repr_digest(DATA)}
    )

    assert answer.status_code == 201
    body = answer.json()
    assert body["sha512"] == hashlib.sha512(DATA).hexdigest()
    assert body["payload_url"] == f"upload:{body['id']}/a.jpg"
    assert answer.headers["Location"] == f"/v1/uploads/{body['id']}"
    assert answer.headers["Repr-Digest"].startswith("sha-512=:")
    view = ada.get(answer.headers["Location"]).json()
    assert view["files"][0]["digest"]["value"] == hashlib.sha256(DATA).hexdigest()


def test_a_wrong_digest_is_422_and_nothing_is_stored(web: Web, ada: Caller) -> None:
    before = stored(web)

    answer = ada.request(
        "POST", "/v1/uploads?name=a.jpg", data=DATA, headers={"Repr-Digest": repr_digest(b"other")}
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "upload-refused")
    assert stored(web) == before


@pytest.mark.parametrize(
    ("query", "headers", "body"),
    [
        ("", {}, iter([DATA])),
        ("", {}, DATA),
        ("?name=a.jpg", {"Repr-Digest": "none"}, DATA),
        ("?name=a.jpg", {"Idempotency-Key": "a", "Repr-Digest": "sha-512=:no:"}, DATA),
    ],
    ids=["in chunks, without a name", "without a name", "a digest of no kind", "a digest that is none"],
)
def test_bytes_that_cannot_be_stored_are_refused_before_there_is_an_upload(
    web: Web, ada: Caller, query: str, headers: dict[str, str], body: Any
) -> None:
    before = stored(web)

    answer = ada.request("POST", f"/v1/uploads{query}", data=body, headers=headers)

    assert answer.status_code == 422
    assert stored(web) == before


def test_a_body_over_the_limit_is_413_before_it_is_read(web: Web, ada: Caller) -> None:
    with _connection(web) as connection:
        connection.sendall(_head(ada, "/v1/uploads?name=a", 6_000_000))
        answered = connection.recv(4096)  # no byte of the body was sent

    assert b" 413 " in answered.partition(b"\r\n")[0]


def test_an_upload_that_is_cut_leaves_nothing(web: Web, ada: Caller) -> None:
    before = stored(web)
    with log_entries() as logged:
        with _connection(web) as connection:
            connection.sendall(_head(ada, "/v1/uploads?name=a", 4_000_000) + DATA)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

        assert ada.get("/v1").status_code == 200
        eventually(lambda: stored(web) == before)
    assert [entry for entry in logged if entry["event"] == "request failed"] == []


def test_a_resumable_upload_continues_at_its_offset(ada: Caller) -> None:
    digest = {"Repr-Digest": repr_digest(b"lighthouse"), "Upload-Length": "10"}
    begun = ada.request(
        "POST", "/v1/uploads?name=a", data=b"light", headers={"Upload-Complete": "?0", **digest}
    )
    place = begun.headers["Location"]

    asked = ada.request("HEAD", place)
    assert (asked.status_code, asked.headers["Upload-Offset"], asked.headers["Upload-Complete"]) == (
        204,
        "5",
        "?0",
    )
    wrong = ada.request("PATCH", place, data=b"xx", headers={"Upload-Offset": "3"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "offset-differs")
    ended = ada.request(
        "PATCH", place, data=b"house", headers={"Upload-Offset": "5", "Upload-Complete": "?1"}
    )
    assert ended.json()["sha512"] == hashlib.sha512(b"lighthouse").hexdigest()


def test_a_file_put_into_an_upload_continues_later_if_it_began_so(ada: Caller) -> None:
    place = ada.request("POST", "/v1/uploads").headers["Location"]
    digest = {"Repr-Digest": repr_digest(b"lighthouse"), "Upload-Length": "10"}

    begun = ada.request("PUT", f"{place}/a", data=b"light", headers={"Upload-Complete": "?0", **digest})
    assert (begun.status_code, begun.json()["size"], begun.json()["complete"]) == (201, 5, False)
    ended = ada.request("PATCH", f"{place}/a", data=b"house", headers={"Upload-Offset": "5"})

    assert ended.json()["sha512"] == hashlib.sha512(b"lighthouse").hexdigest()


def test_a_first_part_that_is_put_again_is_not_written_after_itself(ada: Caller) -> None:
    place = ada.request("POST", "/v1/uploads").headers["Location"]
    first = {"data": b"light", "headers": {"Upload-Complete": "?0"}}

    ada.request("PUT", f"{place}/a", **first)
    again = ada.request("PUT", f"{place}/a", **first)

    assert (again.status_code, again.json()["code"]) == (409, "offset-differs")
    assert ada.request("HEAD", f"{place}/a").headers["Upload-Offset"] == "5"


def test_a_file_shorter_than_its_stated_length_is_refused(ada: Caller) -> None:
    place = ada.request("POST", "/v1/uploads").headers["Location"]

    answer = ada.request("PUT", f"{place}/a", data=b"light", headers={"Upload-Length": "10"})

    assert (answer.status_code, answer.json()["code"]) == (422, "upload-refused")


@pytest.mark.parametrize("headers", [{}, {"Upload-Complete": "?0"}])
def test_an_upload_whose_token_is_revoked_meanwhile_is_refused_at_its_end(
    web: Web, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    name = f"leaver-{len(headers)}"
    leaver = web.caller(Role.DEPOSITOR, ["demo"], name=name)

    def body() -> Iterator[bytes]:
        yield DATA
        revoke_token(web.context.tokens(), name, "ann", now())
        yield DATA

    answer = leaver.request("POST", "/v1/uploads?name=a.jpg", data=body(), headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (401, "invalid-token")


def test_an_upload_at_whose_end_the_inventory_is_away_has_arrived(
    web: Web, ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    stores.compare(web.context.session, web.context.settings)  # a missing inventory is not made again
    inventory, away = (web.context.settings.data / name for name in ("inventory.sqlite", "away"))

    before = parts_of_uploads(web)

    def body() -> Iterator[bytes]:
        yield DATA
        eventually(lambda: parts_of_uploads(web) - before)
        inventory.rename(away)
        yield DATA

    try:
        answer = ada.request("POST", "/v1/uploads?name=a.jpg", data=body())
    finally:
        away.rename(inventory)

    assert (answer.status_code, answer.json().get("complete")) == (201, True), answer.text


def test_an_upload_takes_several_files_and_is_removed_by_its_owner(ada: Caller) -> None:
    place = ada.request("POST", "/v1/uploads").headers["Location"]

    for name in ("folder/a.txt", "b%20c.txt"):
        assert ada.request("PUT", f"{place}/{name}", data=b"x").status_code == 201
    assert ada.request("PUT", f"{place}/folder/a.txt", data=b"x").status_code == 201
    assert ada.request("PUT", f"{place}/folder/a.txt", data=b"y").json()["code"] == "upload-conflict"
    assert ada.request("PUT", f"{place}/a%5Cb", data=b"y").status_code == 422

    assert [file["name"] for file in ada.get(place).json()["files"]] == ["b c.txt", "folder/a.txt"]
    assert ada.request("DELETE", place).status_code == 204
    assert ada.get(place).status_code == 404


def test_only_its_owner_sees_an_upload(web: Web, ada: Caller) -> None:
    place = ada.request("POST", "/v1/uploads?name=a", data=b"x").headers["Location"]

    for caller in (web.caller(Role.DEPOSITOR, name="eve"), web.caller(Role.ADMIN, name="root")):
        answers = [
            caller.get(place),
            caller.request("HEAD", place),
            caller.request("PATCH", place, data=b"x", headers={"Upload-Offset": "0"}),
            caller.request("PUT", f"{place}/b", data=b"x"),
            caller.request("DELETE", place),
        ]
        assert [answer.status_code for answer in answers] == [404] * 5
    assert web.caller(Role.VIEWER).request("POST", "/v1/uploads?name=a", data=b"x").status_code == 403
    assert web.anybody.request("POST", "/v1/uploads?name=a", data=b"x").status_code == 401


def _connection(web: Web) -> socket.socket:
    address = urlsplit(web.url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def _head(caller: Caller, path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {caller.token}\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()


def test_the_holder_of_a_token_has_a_quota_that_a_removal_frees(module_settings: Settings) -> None:
    with (
        serving(module_settings.model_copy(update={"upload_bytes_of_owner": 1000})) as web,
        log_entries() as logged,
    ):
        grace = web.caller(Role.DEPOSITOR, ["demo"], name="grace")
        first = grace.request("POST", "/v1/uploads?name=a.jpg", data=b"x" * 900)
        chunked = grace.request("POST", "/v1/uploads?name=b.jpg", data=iter([b"x" * 101]))
        form = grace.post("/poster/submit", files={"file": ("c.jpg", b"x" * 101)})
        grace.request("DELETE", first.headers["Location"])
        again = grace.request("POST", "/v1/uploads?name=b.jpg", data=b"x" * 1000)

    assert (chunked.status_code, chunked.json()["code"]) == (507, "upload-quota")
    assert "ARKLINE_UPLOAD_BYTES_OF_OWNER" in chunked.json()["detail"]
    assert form.status_code == 507
    assert again.status_code == 201
    assert [entry["event"] for entry in logged].count("upload quota reached") == 2
