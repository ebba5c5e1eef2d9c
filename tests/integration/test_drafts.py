"""Drafts over HTTP: kept, previewed, corrected, and deposited once."""

from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support.web import Caller, Web, serving
from zkstate.record import batches

HARBOUR = b"lighthouse" * 1000


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


def begin(caller: Caller) -> str:
    upload: str = caller.request("POST", "/v1/uploads").json()["id"]
    return upload


def send(caller: Caller, upload: str, name: str, data: bytes) -> None:
    assert caller.request("PUT", f"/v1/uploads/{upload}/{name}", data=data).status_code == 201


def draft(objects: str, *names: str, **more: Any) -> dict[str, Any]:
    files = [{"name": name, "size": len(HARBOUR)} for name in names]
    return {"profile": "demo", "objects": objects, "files": files, **more}


def keep(caller: Caller, upload: str, given: dict[str, Any]) -> dict[str, Any]:
    answer = caller.request("PUT", f"/v1/drafts/{upload}", json=given)
    assert answer.status_code == 200, answer.text
    preview: dict[str, Any] = answer.json()
    return preview


def test_a_table_and_its_files_become_a_batch(web: Web, ada: Caller) -> None:
    upload = begin(ada)
    send(ada, upload, "list.csv", b"file,title,id\na.jpg,Harbour,h 1\nb.jpg,Pier,h 2\n")
    preview = keep(ada, upload, draft("table", "a.jpg", "b.jpg", table="list.csv"))

    assert [(one["title"], one["local_id"]) for one in preview["objects"]] == [
        ("Harbour", ["h 1"]),
        ("Pier", ["h 2"]),
    ]
    assert (preview["erroneous"], preview["errors"], preview["unlisted"]) == (0, [], [])

    early = ada.post(f"/v1/drafts/{upload}/deposit")
    assert (early.status_code, early.json()["code"]) == (409, "draft-incomplete")
    assert [one["file"] for one in early.json()["errors"]] == ["a.jpg", "b.jpg"]

    for name in ("a.jpg", "b.jpg"):
        send(ada, upload, f"files/{name}", HARBOUR)
    done = ada.post(f"/v1/drafts/{upload}/deposit")
    again = ada.post(f"/v1/drafts/{upload}/deposit")

    assert (done.status_code, done.json()["again"]) == (201, False)
    assert (again.status_code, again.json()) == (200, {**done.json(), "again": True})
    batch = batches.load(web.context.session, done.json()["bid"])
    assert batch.submission.type == "single_file_batch_manifest"
