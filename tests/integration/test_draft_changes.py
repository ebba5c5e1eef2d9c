"""A draft that is changed in two tabs, and one whose table is changed outside."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.uploads import stored
from tests.integration.test_drafts import (
    FILES,
    TABLE,
    begin,
    deposit,
    draft,
    errors,
    ready,
    save,
    send,
    with_table,
)
from tests.support.web import Caller, Web, serving


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


def save_if(caller: Caller, upload: str, version: int, given: dict[str, Any]) -> requests.Response:
    return caller.request("PUT", f"/v1/drafts/{upload}", json=given, headers={"If-Match": f'"{version}"'})


def corrected(values: dict[str, str]) -> dict[str, Any]:
    given = draft("table", table="list.csv", values=values)
    del given["files"]
    return given


def values_of(caller: Caller, upload: str) -> dict[str, str]:
    values: dict[str, str] = caller.get(f"/v1/drafts/{upload}").json()["draft"]["values"]
    return values


def replace_table(caller: Caller, upload: str, text: str) -> None:
    removed = caller.request("DELETE", f"/v1/uploads/{upload}/list.csv")
    assert removed.status_code == 204, removed.text
    send(caller, upload, "list.csv", text.encode())


def test_of_two_tabs_the_one_that_saw_an_older_draft_is_refused_and_the_other_one_s_value_stays(
    ada: Caller,
) -> None:
    upload, seen = with_table(ada, TABLE, *FILES)
    first = save_if(ada, upload, seen["version"], corrected({"2:title": "Quay"}))

    late = save_if(ada, upload, seen["version"], corrected({"2:title": "Wharf"}))

    assert (first.status_code, first.json()["version"]) == (200, seen["version"] + 1)
    assert (late.status_code, late.json()["code"]) == (412, "draft-changed")
    assert "read it again" in late.json()["detail"]
    shown = ada.get(f"/v1/drafts/{upload}").json()
    assert (shown["draft"]["values"], shown["preview"]["version"]) == (
        {"2:title": "Quay"},
        seen["version"] + 1,
    )
    again = save_if(ada, upload, shown["preview"]["version"], corrected({"2:title": "Wharf"}))
    assert again.json()["objects"][0]["title"] == "Wharf"


def test_what_another_tab_changed_is_not_deposited_unseen(ada: Caller) -> None:
    upload = ready(ada, TABLE.replace("h ", "unseen "))
    seen = ada.get(f"/v1/drafts/{upload}").json()["preview"]["version"]
    save(ada, upload, corrected({"2:title": "Quay"}))
    place = f"/v1/drafts/{upload}/deposit"

    refused = ada.request("POST", place, headers={"If-Match": f'"{seen}"'})

    assert (refused.status_code, refused.json()["code"]) == (412, "draft-changed")
    assert ada.request("POST", place, headers={"If-Match": f'"{seen + 1}"'}).status_code == 201


def test_a_damaged_draft_is_replaced_by_the_tab_that_had_saved_it(web: Web, ada: Caller) -> None:
    upload, seen = with_table(ada, TABLE, *FILES)
    folder = stored.folder_of(web.context.settings.uploads_folder, upload)
    (folder / stored.DRAFT).write_bytes(b'{"profile": ')

    without_files = save_if(ada, upload, seen["version"], corrected({"2:title": "Quay"}))
    whole = draft("table", *FILES, table="list.csv", values={"2:title": "Quay"})
    replaced = save_if(ada, upload, seen["version"], whole)

    assert (without_files.status_code, without_files.json()["code"]) == (404, "no-draft")
    assert (replaced.status_code, replaced.json()["version"]) == (200, seen["version"] + 1)


def test_a_table_is_replaced_alone_and_corrections_follow_their_rows(ada: Caller) -> None:
    upload = ready(ada, TABLE.replace("h ", "moved "))
    save(ada, upload, corrected({"2:title": "Quay", "3:date": "1911", "3:title": "Wharf"}))

    replace_table(ada, upload, "title,file,id\nNew,c.jpg,moved 0\nHarbour,a.jpg,moved 1\n")
    preview = save(ada, upload, corrected({"2:title": "Quay", "3:date": "1911", "3:title": "Wharf"}))

    assert [one["title"] for one in preview["objects"]] == ["New", "Quay"]
    assert (preview["values"], preview["lost"]) == (
        {"3:title": "Quay"},
        {"3:date": "1911", "3:title": "Wharf"},
    )
    assert values_of(ada, upload) == {"3:title": "Quay"}
    assert preview["arrived_files"] == 1
    assert {one["name"] for one in ada.get(f"/v1/uploads/{upload}").json()["files"]} >= {
        "files/a.jpg",
        "files/b.jpg",
    }


def test_a_correction_of_the_very_cell_that_was_corrected_outside_stays_with_its_row(ada: Caller) -> None:
    text = "file,title,id\nA0.jpg,Harbour,cell 1\nb.jpg,Pier,cell 1\n"
    upload, _ = with_table(ada, text, *FILES)
    values = {"2:file": "a.jpg", "3:local_id": "cell 2"}
    save(ada, upload, corrected(values))

    replace_table(ada, upload, text.replace("A0", "a").replace("Pier,cell 1", "Pier,cell 2"))
    preview = save(ada, upload, corrected(values))

    assert (errors(preview), preview["values"], preview["lost"]) == ([], None, {})


@pytest.mark.parametrize("change", [{"columns": {"title": ""}}, {"header_row": 1}, {"objects": "each"}])
def test_another_reading_of_the_same_table_loses_no_correction(ada: Caller, change: dict[str, Any]) -> None:
    upload, _ = with_table(ada, TABLE, *FILES)
    values = {"2:title": "Quay", "3:date": "1911", "a.jpg:title": "Of the file"}
    save(ada, upload, corrected(values))

    preview = save(ada, upload, corrected(values) | change)

    assert (preview["values"], preview["lost"]) == (None, {})
    assert values_of(ada, upload) == values


def test_a_correction_that_was_never_of_a_row_is_kept_as_it_is(ada: Caller) -> None:
    upload, _ = with_table(ada, TABLE, *FILES, values={"99:title": "Nowhere"})

    replace_table(ada, upload, "file\na.jpg\n")

    assert save(ada, upload, corrected({"99:title": "Nowhere"}))["lost"] == {}


def test_no_file_of_an_upload_that_was_submitted_is_removed(ada: Caller) -> None:
    upload = ready(ada, TABLE.replace("h ", "submitted "))
    assert deposit(ada, upload).status_code == 201

    refused = ada.request("DELETE", f"/v1/uploads/{upload}/list.csv")

    assert (refused.status_code, refused.json()["code"]) == (422, "usage-refused")
    assert ada.request("DELETE", f"/v1/uploads/{begin(ada)}/list.csv").status_code == 204
