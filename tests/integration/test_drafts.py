"""Drafts over HTTP: saved, previewed, corrected, and deposited once."""

import hashlib
import os
import re
import shutil
import threading
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from operations.deposits.local_deposit import plan_deposit
from pipeline.manifests.checkm import ManifestError
from pipeline.names import is_system_file, parse_upload_url
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event
from pipeline.tables.content import Choice
from pipeline.uploads import stored
from tests.support import planting
from tests.support.web import OWN_FORM, Caller, Web, serving
from zkstate.record import batches
from zkstate.record.deletion import remove_batch

HARBOUR = b"lighthouse" * 1000
FILES = ("a.jpg", "b.jpg")
TABLE = "file,title,id\na.jpg,Harbour,h 1\nb.jpg,Pier,h 2\n"


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    """With profiles of its own, which tests change."""
    own = module_settings.home / "own-profiles"
    shutil.copytree(module_settings.profiles, own)
    with serving(module_settings.model_copy(update={"profiles": own})) as running:
        yield running


@pytest.fixture(scope="module")
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


def begin(caller: Caller) -> str:
    upload: str = caller.request("POST", "/v1/uploads").json()["id"]
    return upload


def send(caller: Caller, upload: str, name: str, data: bytes = HARBOUR) -> None:
    answer = caller.request("PUT", f"/v1/uploads/{upload}/{name}", data=data)
    assert answer.status_code == 201, answer.text


def draft(objects: str, *names: str, **more: Any) -> dict[str, Any]:
    files = [{"name": name, "size": len(HARBOUR)} for name in names]
    return {"profile": "demo", "objects": objects, "files": files, **more}


def save(caller: Caller, upload: str, given: dict[str, Any]) -> dict[str, Any]:
    answer = caller.request("PUT", f"/v1/drafts/{upload}", json=given)
    assert answer.status_code == 200, answer.text
    preview: dict[str, Any] = answer.json()
    return preview


def deposit(caller: Caller, upload: str, query: str = "") -> requests.Response:
    return caller.post(f"/v1/drafts/{upload}/deposit{query}")


def with_table(caller: Caller, text: str, *names: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """An upload with this table, and the preview of its draft."""
    upload = begin(caller)
    send(caller, upload, "list.csv", text.encode())
    return upload, save(caller, upload, draft("table", *names, table="list.csv", **more))


def ready(caller: Caller, text: str, **more: Any) -> str:
    """An upload whose draft and files have arrived."""
    upload, _ = with_table(caller, text, *FILES, **more)
    for name in FILES:
        send(caller, upload, f"files/{name}")
    return upload


def errors(preview: dict[str, Any]) -> list[tuple[int, str | None, str]]:
    return [(one["row"], p["field"], p["message"]) for one in preview["objects"] for p in one["errors"]]


def test_a_table_and_its_files_become_a_batch(web: Web, ada: Caller) -> None:
    upload, preview = with_table(ada, TABLE, *FILES)

    shown = [(one["key"], one["title"], one["local_id"], one["files"]) for one in preview["objects"]]
    size = len(HARBOUR)
    assert shown == [
        ("2", "Harbour", ["h 1"], [{"name": "a.jpg", "size": size, "arrived": False, "url": None}]),
        ("3", "Pier", ["h 2"], [{"name": "b.jpg", "size": size, "arrived": False, "url": None}]),
    ]
    assert (preview["erroneous"], preview["errors"], preview["unlisted"]) == (0, [], [])
    early = deposit(ada, upload)
    assert (early.status_code, early.json()["code"]) == (409, "draft-incomplete")
    assert [one["file"] for one in early.json()["errors"]] == ["a.jpg", "b.jpg"]

    for name in FILES:
        send(ada, upload, f"files/{name}")
    done = deposit(ada, upload)

    assert (done.status_code, done.json()["again"]) == (201, False)
    submission = batches.load(web.context.session, done.json()["bid"]).submission
    assert (submission.type, submission.new_version) == ("single_file_batch_manifest", False)
    manifest = stored.locate(web.context.settings.uploads_folder, submission.payload_url).path.read_text()
    rows = [line.split(" | ") for line in manifest.splitlines() if not line.startswith("#")]
    digest = hashlib.sha512(HARBOUR).hexdigest()
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (f"upload:{upload}/files/{name}", digest, str(size)) for name in FILES
    ]


def test_the_same_deposit_sent_twice_is_one_and_again_makes_another(web: Web, ada: Caller) -> None:
    text = TABLE.replace("h ", "twice ")
    first, second = ready(ada, text), ready(ada, text)

    done = [deposit(ada, upload) for upload in (first, first, second)]
    another = [deposit(ada, first, "?again=true") for _ in range(2)]

    assert [answer.status_code for answer in (*done, *another)] == [201, 200, 200, 201, 200]
    assert len({answer.json()["bid"] for answer in done}) == 1
    assert len({answer.json()["bid"] for answer in another}) == 1
    assert another[0].json()["bid"] != done[0].json()["bid"]
    assert [answer.json()["again"] for answer in done] == [False, True, True]


def test_two_tabs_at_once_make_one_batch(web: Web, ada: Caller) -> None:
    text = TABLE.replace("h ", "tab ")
    tabs = [ready(ada, text), ready(ada, text)]
    answers: list[requests.Response] = []
    start = threading.Barrier(4)

    def send_deposit(upload: str) -> None:
        start.wait()
        answers.append(deposit(ada, upload))

    threads = [threading.Thread(target=send_deposit, args=(upload,)) for upload in tabs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["bid"] for answer in answers}) == 1


def test_a_failed_or_deleted_deposit_does_not_count(web: Web, ada: Caller) -> None:
    session = web.context.session
    upload = ready(ada, TABLE.replace("h ", "failed "))
    first: str = deposit(ada, upload).json()["bid"]
    batch = batches.load(session, first)
    for event in (Event.FAIL, Event.FAIL):
        batch = planting.apply_batch_event(session, batch, event)

    renamed = save(ada, upload, draft("table", *FILES, table="list.csv", name="A better name"))
    second = deposit(ada, upload)
    third = deposit(ada, upload)

    assert renamed["erroneous"] == 0
    assert (second.status_code, third.status_code) == (201, 200)
    assert second.json()["bid"] == third.json()["bid"] != first
    remove_batch(session, planting.apply_batch_event(session, batch, Event.DELETE))
    assert deposit(ada, upload).json() == {"bid": second.json()["bid"], "again": True}


def test_a_draft_of_which_a_batch_was_made_stays_readable_and_is_not_changed(ada: Caller) -> None:
    upload = ready(ada, TABLE.replace("h ", "frozen "))
    bid = deposit(ada, upload).json()["bid"]

    changed = ada.request("PUT", f"/v1/drafts/{upload}", json=draft("each", *FILES))

    assert (changed.status_code, changed.json()["code"]) == (409, "draft-submitted")
    view = ada.get(f"/v1/drafts/{upload}").json()
    assert (view["bid"], view["draft"]["objects"]) == (bid, "table")
    assert upload not in {row["id"] for row in ada.get("/v1/drafts").json()["drafts"]}


def test_corrections_are_saved_and_apply(ada: Caller) -> None:
    upload, wrong = with_table(ada, "file,title,date,ark\nA.JPG,Harbour,1901,no ark\n", *FILES)

    assert [(row, field) for row, field, _ in errors(wrong)] == [(2, "ark"), (2, "file")]
    assert wrong["missing"] == [{"key": "2", "name": "A.JPG", "near": ["a.jpg"]}]
    values = {"2:file": "a.jpg", "2:ark": "", "2:title": "Harbour at dawn"}
    right = save(ada, upload, draft("table", *FILES, table="list.csv", values=values))

    assert errors(right) == []
    assert right["objects"][0]["title"] == "Harbour at dawn"
    assert right["unlisted"] == ["b.jpg"]
    assert ada.get(f"/v1/drafts/{upload}").json()["draft"]["values"] == values


def test_a_correction_is_saved_without_the_files_which_stay(ada: Caller) -> None:
    upload, _ = with_table(ada, TABLE, *FILES)
    given = draft("table", table="list.csv", values={"2:title": "Quay"})
    del given["files"]

    corrected = save(ada, upload, given)
    emptied = save(ada, upload, {**given, "files": []})

    assert (corrected["objects"][0]["title"], errors(corrected)) == ("Quay", [])
    assert [one["name"] for one in emptied["missing"]] == list(FILES)


def test_what_is_unpacked_is_said_by_the_file_or_else_by_the_url(web: Web, ada: Caller) -> None:
    text = "url,file\nhttps://example.org/get?id=1,a.zip\nhttps://example.org/b.zip,\n"
    upload, preview = with_table(ada, text)

    assert errors(preview) == []
    bid = deposit(ada, upload).json()["bid"]
    assert batches.load(web.context.session, bid).submission.type == "container_batch_manifest"


def test_cells_beyond_the_columns_refuse_a_row_if_they_have_text(ada: Caller) -> None:
    _, preview = with_table(ada, "file,title\na.jpg,Harbour,,\nb.jpg,Pier, at dawn\n", *FILES)

    ((row, field, message),) = errors(preview)
    assert (row, field) == (3, None)
    assert message.startswith("the row has more cells than the 2 columns")


def test_a_bag_chosen_as_a_folder_is_recognised_and_refused_if_it_is_not_whole(ada: Caller) -> None:
    whole = save(ada, begin(ada), draft("one", "bagit.txt", "manifest-md5.txt", "data/a.jpg"))
    holey = save(ada, begin(ada), draft("one", "bagit.txt", "manifest-md5.txt", "fetch.txt"))

    assert (whole["errors"], len(whole["warnings"])) == ([], 1)
    assert "compared with its manifests" in whole["warnings"][0]
    assert ["fetch.txt" in message for message in holey["errors"]] == [True]


def test_all_missing_files_are_listed_with_near_matches(ada: Caller) -> None:
    text = "file\nscans/a.jpg\nb.tif\nphoto_1.jpeg\nnothing like it\n"
    _, preview = with_table(ada, text, "a.jpg", "b.jpg", "photo-1.jpeg")

    assert [(one["key"], one["near"]) for one in preview["missing"]] == [
        ("2", ["a.jpg"]),
        ("3", ["b.jpg"]),
        ("4", ["photo-1.jpeg"]),
        ("5", []),
    ]


def test_of_similar_files_one_that_no_row_names_is_meant(ada: Caller) -> None:
    text = "file\nimg_0O1.jpg\nimg_011.jpg\nimg_021.jpg\n"
    _, preview = with_table(ada, text, "img_001.jpg", "img_011.jpg", "img_021.jpg")

    assert [one["near"] for one in preview["missing"]] == [["img_001.jpg"]]


def test_a_name_that_is_composed_otherwise_is_matched_and_said(ada: Caller) -> None:
    chosen, listed = (unicodedata.normalize(form, "café.jpg") for form in ("NFD", "NFC"))
    _, preview = with_table(ada, f"file\n{listed}\n", chosen)

    (one,) = preview["objects"]
    assert (one["errors"], one["files"][0]["name"]) == ([], chosen)
    assert "NFC and NFD" in one["warnings"][0]["message"]


def test_an_identifier_in_two_rows_is_an_error_and_a_file_in_two_rows_is_said(ada: Caller) -> None:
    _, preview = with_table(ada, "file,id\na.jpg,x\na.jpg,y\nb.jpg,x\n", *FILES)

    assert [(row, field) for row, field, _ in errors(preview)] == [(4, "local_id")]
    assert errors(preview)[0][2].startswith("row 2 has the same local id")
    said = {
        one["row"]: [(each["field"], each["message"]) for each in one["warnings"]]
        for one in preview["objects"]
    }
    assert said[3] == [("file", "'a.jpg' is also the file of row 2")]


def test_system_files_are_left_out_and_named(ada: Caller) -> None:
    system = (".DS_Store", "scans/Thumbs.db", "scans/._a.jpg", ".git/HEAD")
    preview = save(ada, begin(ada), draft("each", "a.jpg", *system, ".htaccess"))

    assert [one["key"] for one in preview["objects"]] == ["a.jpg", ".htaccess"]
    assert preview["left_out"] == list(system)
    assert all(map(is_system_file, system))


def test_nothing_is_left_out_of_a_bag_that_is_one_object(web: Web) -> None:
    hope = web.caller(Role.DEPOSITOR, ["demo"], name="hope")
    names = ("bagit.txt", "manifest-sha256.txt", "data/.DS_Store", "data/a.jpg")

    preview = save(hope, begin(hope), draft("one", *names))

    assert (preview["left_out"], preview["objects"][0]["file_count"]) == ([], 4)
    assert hope.get("/v1/drafts").json()["drafts"][0]["files"] == 4


def test_a_row_may_name_a_file_of_the_operating_system(ada: Caller) -> None:
    _, preview = with_table(ada, "file\nscans/Thumbs.db\na.jpg\n", "a.jpg", "scans/Thumbs.db", ".DS_Store")

    assert (preview["object_count"], errors(preview), preview["missing"]) == (2, [], [])
    assert (preview["left_out"], preview["unlisted"]) == ([".DS_Store"], [])


@pytest.mark.parametrize(
    ("header", "columns", "problem"),
    [
        ("file,title,Titel", {}, "'title' and 'Titel' are both the column Title: leave one of them out"),
        ("file,MD5,SHA1", {}, "'MD5' and 'SHA1' are both the column Digest: leave one of them out"),
        ("file,foo,title", {"foo": "title"}, "'foo' and 'title' are both the column Title"),
        ("file,foo,bar", {"foo": "colour"}, "'colour', given for the column 'foo', is no field"),
    ],
)
def test_columns_that_submit_refuses_refuse_a_draft_in_the_same_words(
    ada: Caller, tmp_path: Path, header: str, columns: dict[str, str], problem: str
) -> None:
    text = f"{header}\na.jpg,,\n"
    (tmp_path / "list.csv").write_text(text)
    (tmp_path / "a.jpg").write_bytes(HARBOUR)

    upload, preview = with_table(ada, text, "a.jpg", columns=columns)

    (said,) = preview["errors"]
    assert said.startswith(problem)
    with pytest.raises(ManifestError, match=re.escape(said)):
        plan_deposit(tmp_path / "list.csv", choice=Choice(columns=columns))
    left_out = {"foo": "", "Titel": "", "SHA1": ""}
    again = save(ada, upload, draft("table", "a.jpg", table="list.csv", columns=left_out))
    assert again["errors"] == []


def test_a_column_that_objects_do_not_have_is_said_to_be_unused(ada: Caller) -> None:
    _, preview = with_table(ada, "file,MIME type,fileLastModified\na.jpg,image/jpeg,2009\n", "a.jpg")

    assert preview["warnings"] == [
        "the column 'MIME type' is not used",
        "the column 'fileLastModified' is not used",
    ]


@pytest.mark.parametrize("case_sensitive", [False, True])
def test_names_that_clash_in_one_object_are_an_error_of_the_preview(
    web: Web, ada: Caller, case_sensitive: bool
) -> None:
    profile = web.context.settings.profiles / "demo.yaml"
    before = profile.read_text()
    profile.write_text(f"{before}\ncase_sensitive_names: {str(case_sensitive).lower()}\n")
    try:
        composed = [unicodedata.normalize(form, "é.jpg") for form in ("NFC", "NFD")]
        preview = save(ada, begin(ada), draft("one", *composed))
        other_case = save(ada, begin(ada), draft("one", "a.jpg", "A.jpg"))
    finally:
        profile.write_text(before)

    assert [field for _, field, _ in errors(preview)] == ["file"]
    assert bool(errors(other_case)) is not case_sensitive


def test_a_name_that_no_deposit_may_have_is_an_error_of_every_preview(ada: Caller) -> None:
    hidden = "Harbour\u202eviews"
    preview = save(ada, begin(ada), draft("each", "a.jpg", name=hidden))
    body = {"profile": "demo", "payload_url": "https://example.org/a.jpg", "deposit_name": hidden}
    by_url = ada.request("POST", "/v1/batches?dry_run=true&ask=0", json=body).json()
    files = {"profile": "demo", "source": "a.jpg", "type": "file", "deposit_name": hidden}
    plan = {"objects": 1, "files": 1, "bytes": 1}
    of_files = ada.request("POST", "/v1/batches/files/dry-run", json={**files, "plan": plan}).json()

    refused = ada.request("POST", "/v1/batches", json=body).json()["detail"]
    assert "U+202E" in refused
    assert preview["errors"] == [refused]
    assert [one["message"] for one in by_url["failures"]] == [refused]
    assert [one["message"] for one in of_files["failures"]] == [refused]


def test_a_deposit_without_a_name_is_called_by_its_table_however_long_the_tables_path_is(
    web: Web, ada: Caller
) -> None:
    table = "folder/" * 60 + "list.csv"
    upload = begin(ada)
    send(ada, upload, table, f"File,Title\n{FILES[0]},A\n".encode())
    save(ada, upload, draft("table", FILES[0], table=table, name=""))
    send(ada, upload, f"files/{FILES[0]}")

    bid = deposit(ada, upload).json()["bid"]

    assert batches.load(web.context.session, bid).submission.deposit_name == table[:255]


def test_more_recipients_than_a_report_may_have_refuse_a_dry_run(ada: Caller) -> None:
    mails = [f"a{number}@example.org" for number in range(200)]
    body = {"profile": "demo", "payload_url": "https://example.org/a.jpg", "notification": mails}

    refused = ada.request("POST", "/v1/batches", json=body).json()["detail"]
    by_url = ada.request("POST", "/v1/batches?dry_run=true&ask=0", json=body).json()

    assert "mail addresses" in refused
    assert [one["message"] for one in by_url["failures"]] == [refused]


def test_an_identifier_of_two_files_is_an_error_that_names_the_files(ada: Caller) -> None:
    values = {"a.jpg:local_id": "x", "b.jpg:local_id": "x"}
    preview = save(ada, begin(ada), draft("each", *FILES, values=values))

    ((row, field, message),) = errors(preview)
    assert (row, field) == (2, "local_id")
    assert message.startswith("file 1 has the same local id")


def test_a_row_may_name_the_table_itself(web: Web, ada: Caller) -> None:
    text = "file,title,id\nlist.csv,The list,own 1\na.jpg,Harbour,own 2\n"
    upload, _ = with_table(ada, text, "a.jpg")
    given = draft("table", "a.jpg", table="list.csv")
    given["files"].append({"name": "list.csv", "size": len(text)})
    preview = save(ada, upload, given)

    assert (errors(preview), preview["unlisted"], preview["table"]["listed"]) == ([], [], True)
    send(ada, upload, "files/a.jpg")
    lacking = deposit(ada, upload).json()["errors"]
    assert [one["file"] for one in lacking] == ["list.csv"]
    send(ada, upload, "files/list.csv", text.encode())
    assert deposit(ada, upload).status_code == 201


def test_a_url_in_a_row_stays_a_url(web: Web, ada: Caller) -> None:
    text = "url,title\nhttps://example.org/a.jpg,Far\nupload:" + "0" * 32 + "/a.jpg,Of another\n"
    _, preview = with_table(ada, text)

    assert preview["objects"][0]["files"] == [
        {"name": "a.jpg", "size": None, "arrived": False, "url": "https://example.org/a.jpg"}
    ]
    assert [(row, field) for row, field, _ in errors(preview)] == [(3, "url")]
    only = with_table(ada, "url,title\nhttps://example.org/a.jpg,Far\n")[0]
    assert deposit(ada, only).status_code == 201


@pytest.mark.parametrize(
    ("names", "objects", "kind"),
    [
        (("a.jpg",), "one", "file"),
        (("a.zip",), "one", "container"),
        (("a.jpg", "b.zip"), "one", "object_manifest"),
        (("scans/a.jpg",), "one", "object_manifest"),
        (("a.jpg", "b.zip"), "each", "single_file_batch_manifest"),
        (("a.zip", "b.tar.gz"), "each", "container_batch_manifest"),
    ],
)
def test_files_without_a_table_are_deposited_as_by_submit(
    web: Web, ada: Caller, names: tuple[str, ...], objects: str, kind: str
) -> None:
    upload, key = begin(ada), "0" if objects == "one" else names[0]
    values = {f"{key}:title": f"Scans of {names} as {objects}", f"{key}:local_id": f"{objects} {names}; x"}
    given = draft(objects, *names, name="Scans", values={**values, f"{key}:local_id": ""})
    preview = save(ada, upload, given)
    for name in names:
        send(ada, upload, f"files/{name}")

    done = deposit(ada, upload)

    assert preview["objects"][0]["title"] == values[f"{key}:title"]
    assert done.status_code == 201, done.text
    submission = batches.load(web.context.session, done.json()["bid"]).submission
    assert submission.type == kind
    assert submission.erc_what == (values["0:title"] if objects == "one" else "")
    assert (submission.payload_name == "Scans") == (kind == "object_manifest")


def test_a_file_that_changed_is_refused_by_its_digest_and_sent_again_alone(web: Web, ada: Caller) -> None:
    upload = begin(ada)
    given = draft("each", *FILES, values={"a.jpg:local_id": "changed 1"})
    for file in given["files"]:
        file["sha512"] = hashlib.sha512(HARBOUR).hexdigest()
    save(ada, upload, given)
    send(ada, upload, "files/a.jpg", HARBOUR[::-1])
    send(ada, upload, "files/b.jpg")

    refused = deposit(ada, upload)

    assert (refused.status_code, refused.json()["code"]) == (409, "draft-incomplete")
    assert [one["file"] for one in refused.json()["errors"]] == ["a.jpg"]
    assert "digest" in refused.json()["detail"]
    send(ada, upload, "files/a.jpg")
    assert deposit(ada, upload).status_code == 201


def test_a_file_of_another_size_than_the_draft_says_is_sent_again(ada: Caller) -> None:
    upload = begin(ada)
    send(ada, upload, "files/a.jpg", b"the first version")
    preview = save(ada, upload, draft("each", "a.jpg"))

    assert (preview["arrived_files"], preview["objects"][0]["files"][0]["arrived"]) == (0, False)
    send(ada, upload, "files/a.jpg")
    assert ada.get(f"/v1/drafts/{upload}").json()["preview"]["arrived_bytes"] == len(HARBOUR)


def test_a_draft_whose_collection_is_gone_is_shown_and_goes_to_another_one_with_its_files(web: Web) -> None:
    both = web.caller(Role.DEPOSITOR, ["demo", "harbour"], name="of-two-collections")
    profiles = web.context.settings.profiles
    gone = profiles / "harbour.yaml"
    gone.write_text((profiles / "demo.yaml").read_text().replace("name: demo", "name: harbour"))
    upload = begin(both)
    save(both, upload, draft("one", FILES[0]) | {"profile": "harbour"})
    send(both, upload, f"files/{FILES[0]}")
    gone.unlink()

    shown = both.get(f"/v1/drafts/{upload}").json()

    assert shown["draft"]["profile"] == "harbour"
    assert shown["preview"]["arrived_files"] == 1
    assert shown["preview"]["errors"] == [deposit(both, upload).json()["detail"]]
    save(both, upload, draft("one", FILES[0]))
    assert deposit(both, upload).status_code == 201


def test_another_principal_sees_nothing(web: Web, ada: Caller) -> None:
    upload, _ = with_table(ada, TABLE, *FILES)
    eve = web.caller(Role.DEPOSITOR, ["demo"], name="eve")

    answers = [
        eve.get(f"/v1/drafts/{upload}"),
        eve.request("PUT", f"/v1/drafts/{upload}", json=draft("each", *FILES)),
        deposit(eve, upload),
    ]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (404, "upload-missing")
    ] * 3
    assert eve.get("/v1/drafts").json()["drafts"] == []
    assert web.caller(Role.VIEWER).get("/v1/drafts").status_code == 403


def test_the_unfinished_drafts_are_listed_with_what_has_arrived(web: Web) -> None:
    grace = web.caller(Role.DEPOSITOR, ["demo"], name="grace")
    chosen = [*draft("table", *FILES, ".DS_Store")["files"], {"name": "list.csv", "size": len(TABLE)}]
    upload, _ = with_table(grace, TABLE, name="Harbour views")
    save(grace, upload, draft("table", table="list.csv", name="Harbour views") | {"files": chosen})
    send(grace, upload, "files/a.jpg")
    part = {"Upload-Complete": "?0", "Upload-Offset": "0"}
    grace.request("PATCH", f"/v1/uploads/{upload}/files/b.jpg", data=HARBOUR[:10], headers=part)

    (row,) = grace.get("/v1/drafts").json()["drafts"]

    assert (row["id"], row["name"], row["profile"], row["objects"]) == (
        upload,
        "Harbour views",
        "demo",
        "table",
    )
    assert (row["files"], row["bytes"]) == (3, 2 * len(HARBOUR) + len(TABLE))
    assert (row["arrived_files"], row["arrived_bytes"]) == (2, len(HARBOUR) + len(TABLE) + 10)
    days = timedelta(days=web.context.settings.upload_days)
    left = datetime.fromisoformat(row["expires"]) - datetime.fromisoformat(row["updated"]) - days
    assert abs(left.total_seconds()) < 60


def test_a_list_reads_so_many_bytes_of_drafts_at_most_and_says_that_there_are_more(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    vera = web.caller(Role.DEPOSITOR, ["demo"], name="vera")
    uploads = [begin(vera), begin(vera)]
    for number, upload in enumerate(uploads):
        save(vera, upload, draft("each", "a.jpg"))
        path = stored.folder_of(web.context.settings.uploads_folder, upload) / stored.DRAFT
        os.utime(path, (number, number))
    monkeypatch.setattr("operations.deposits.draft.LOOKED_BYTES", path.stat().st_size)

    listed = vera.get("/v1/drafts").json()

    assert ([row["id"] for row in listed["drafts"]], listed["all"]) == ([uploads[1]], False)


def test_a_damaged_draft_spoils_no_list_and_is_replaced(web: Web) -> None:
    joan = web.caller(Role.DEPOSITOR, ["demo"], name="joan")
    upload, other = begin(joan), begin(joan)
    for one in (upload, other):
        save(joan, one, draft("each", "a.jpg"))
    folder = stored.folder_of(web.context.settings.uploads_folder, upload)
    (folder / stored.DRAFT).write_bytes(b'{"profile": ')

    rows = {row["id"]: row for row in joan.get("/v1/drafts").json()["drafts"]}

    assert rows.keys() == {upload, other}
    assert "send it again" in rows[upload]["problem"]
    asked = joan.get(f"/v1/drafts/{upload}")
    assert (asked.status_code, asked.json()["code"]) == (404, "no-draft")
    assert save(joan, upload, draft("each", "a.jpg"))["object_count"] == 1


def test_a_draft_of_a_later_release_keeps_what_this_one_knows(web: Web, ada: Caller) -> None:
    upload = begin(ada)
    assert save(ada, upload, {**draft("each", "a.jpg"), "of_tomorrow": 1})["object_count"] == 1


def test_a_page_of_the_preview_has_its_objects_and_errors_are_shown_alone(ada: Caller) -> None:
    names = [f"{number}.jpg" for number in range(5)]
    text = "file,ark\n" + "".join(
        f"{name},{'no ark' if name in ('1.jpg', '4.jpg') else ''}\n" for name in names
    )
    upload, _ = with_table(ada, text, *names)
    place = f"/v1/drafts/{upload}?limit=2"

    first = ada.get(place).json()
    second = ada.get(f"{place}&cursor={first['preview']['next']}").json()
    wrong = ada.get(f"{place}&only=errors").json()["preview"]

    assert [one["row"] for one in first["preview"]["objects"]] == [2, 3]
    assert ([one["row"] for one in second["preview"]["objects"]], second["draft"]) == ([4, 5], None)
    assert [one["row"] for one in wrong["objects"]] == [3, 6]
    assert (wrong["next"], wrong["object_count"], wrong["erroneous"]) == (None, 5, 2)


def test_a_draft_that_is_too_large_or_invalid_is_refused_and_the_earlier_one_stays(ada: Caller) -> None:
    upload = begin(ada)
    save(ada, upload, draft("each", "a.jpg"))

    huge = ada.request("PUT", f"/v1/drafts/{upload}", data=b" " * ((32 << 20) + 1))
    invalid = ada.request("PUT", f"/v1/drafts/{upload}", json={"profile": "demo", "objects": "some"})
    foreign = ada.request("PUT", f"/v1/drafts/{upload}", json={**draft("each"), "profile": "other"})

    assert [answer.status_code for answer in (huge, invalid, foreign)] == [413, 422, 403]
    assert ada.get(f"/v1/drafts/{upload}").json()["draft"]["files"][0]["name"] == "a.jpg"


def test_a_draft_counts_in_the_quota(module_settings: Settings) -> None:
    with serving(module_settings.model_copy(update={"upload_bytes_of_owner": 2000})) as small:
        mary = small.caller(Role.DEPOSITOR, ["demo"], name="mary")
        upload = begin(mary)
        save(mary, upload, draft("each", "a.jpg"))
        refused = mary.request("PUT", f"/v1/drafts/{upload}", json=draft("each", *(["b.jpg"] * 100)))

    assert (refused.status_code, refused.json()["code"]) == (507, "upload-quota")


def test_a_draft_keeps_its_upload_for_as_long_again(web: Web, ada: Caller) -> None:
    upload = begin(ada)
    save(ada, upload, draft("each", "a.jpg"))
    folder = stored.folder_of(web.context.settings.uploads_folder, upload)
    for path in (folder, *folder.iterdir()):
        os.utime(path, (1, 1))
    before = ada.get(f"/v1/drafts/{upload}").json()["expires"]

    save(ada, upload, draft("each", "a.jpg"))

    assert before.startswith("1970-01-0")
    assert ada.get(f"/v1/drafts/{upload}").json()["expires"] > "2026"


def test_the_page_uses_the_routes_with_its_session_and_another_site_does_not(web: Web, ada: Caller) -> None:
    page = requests.Session()
    page.post(f"{web.url}/login", data={"token": ada.token}, headers=OWN_FORM, timeout=30)
    upload = page.post(f"{web.url}/v1/uploads", headers=OWN_FORM, timeout=30).json()["id"]
    place, given = f"{web.url}/v1/drafts/{upload}", draft("each", "a.jpg")

    own = page.put(place, json=given, headers=OWN_FORM, timeout=30)
    by_origin = page.put(place, json=given, headers={"Origin": web.url}, timeout=30)
    foreign = [
        page.put(place, json=given, headers=headers, timeout=30)
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {})
    ]
    deposited = page.post(f"{place}/deposit", headers={"Sec-Fetch-Site": "cross-site"}, timeout=30)

    assert (own.status_code, by_origin.status_code) == (200, 200)
    assert [(one.status_code, one.json()["code"]) for one in foreign] == [(403, "cross-site-request")] * 3
    assert deposited.status_code == 403
    assert page.get(place, timeout=30).status_code == 200
    assert parse_upload_url(f"upload:{upload}").upload == upload
