"""Merritt's form, as its clients send it."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
import requests

from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.names import parse_upload_url
from pipeline.principal import Role
from pipeline.records import SubmissionMode, SubmissionType
from pipeline.settings import Settings
from pipeline.uploads.stored import locate
from tests.support.web import Caller, Web, serving
from zkstate.record import batches

BATCH = "{http://uc3.cdlib.org/ontology/mrt/ingest/batch}"


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def ada(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, ["demo"], name="ada")


def post(caller: Caller, path: str, *files: Any, **fields: str) -> requests.Response:
    given = {"profile": "demo", "submitter": "ada", "responseForm": "json", **fields}
    parts = [("file", file) for file in files] or [("nothing", (None, ""))]
    return caller.request("POST", path, data=given, files=parts)


def bid_of(answer: requests.Response) -> str:
    assert answer.status_code == 200, answer.text
    state = answer.json()["bat:batchState"]
    assert state["bat:batchStatus"] == "QUEUED"
    return str(state["bat:batchID"])


def test_a_file_is_submitted_with_its_description(web: Web, ada: Caller) -> None:
    answer = post(
        ada,
        "/poster/submit",
        ("photo 1.jpg", b"light"),
        type="file",
        creator="Seneca",
        title="Harbour",
        localIdentifier="a 1;b%sc2",
        digestType="md5",
        digestValue="2d54ec5a0cbd0b3b1c3e5ab6a1b2d7d1",
        **{"DC.language": "de"},
    )
    assert (answer.status_code, answer.json()["exc:exceptionState"]["exc:status"]) == (400, "REQUEST_INVALID")

    bid = bid_of(
        post(
            ada,
            "/poster/update/ark:/99999/fk4abc",
            ("photo 1.jpg", b"light"),
            type="file",
            creator="Seneca",
            localIdentifier="a 1;b%sc2",
            **{"DC.language": "de"},
        )
    )

    submission = batches.load(web.context.session, bid).submission
    assert (submission.type, submission.submission_mode) == (SubmissionType.FILE, SubmissionMode.UPDATE)
    assert submission.may_add_version
    assert (submission.erc_who, submission.local_id) == ("Seneca", ("a 1", "b;2"))
    assert (submission.primary_id, submission.dublin_core) == ("ark:/99999/fk4abc", {"language": ("de",)})
    assert locate(web.context.settings.uploads_folder, submission.payload_url).path.read_bytes() == b"light"


def test_several_files_are_a_batch_and_a_manifest_is_recognised(web: Web, ada: Caller) -> None:
    several = bid_of(post(ada, "/poster/add", ("a.jpg", b"1"), ("a.jpg", b"2"), type="file"))
    rows = [Row(0, "https://example.org/a.jpg", "a.jpg")]
    manifest = bid_of(post(ada, "/poster/add", ("m.txt", write(ManifestProfile.BATCH, rows))))

    session = web.context.session
    assert batches.load(session, several).submission.type is SubmissionType.SINGLE_FILE_BATCH_MANIFEST
    assert not batches.load(session, several).submission.may_add_version
    assert batches.load(session, manifest).submission.type is SubmissionType.BATCH_MANIFEST
    assert parse_upload_url(batches.load(session, several).submission.payload_url).name == "batch.checkm"


def test_a_url_is_submitted_and_answered_in_xml_to_basic_authentication(web: Web, ada: Caller) -> None:
    basic = base64.b64encode(f"ada:{ada.token}".encode()).decode()
    answer = requests.post(
        f"{web.url}/poster/submit",
        files={
            "file": (None, "https://example.org/a.zip"),
            "profile": (None, "demo"),
            "submitter": (None, "ada <&"),
        },
        headers={"Authorization": f"Basic {basic}"},
        timeout=30,
    )

    assert answer.status_code == 200, answer.text
    bid = ElementTree.fromstring(answer.text).findtext(f"{BATCH}batchID") or ""
    assert batches.load(web.context.session, bid).submission.type is SubmissionType.CONTAINER


def test_what_is_wrong_is_answered_in_merritts_form(web: Web, ada: Caller) -> None:
    file = ("a.jpg", b"x")

    answers = {
        post(ada, "/poster/submit").status_code: 400,
        post(ada, "/poster/submit", file, profile="unknown").status_code: 404,
        post(ada, "/poster/submit", file, responseForm="turtle").status_code: 415,
        post(ada, "/poster/submit", file, type="7z").status_code: 400,
        post(web.caller(Role.VIEWER), "/poster/submit", file).status_code: 403,
        post(web.anybody, "/poster/submit", file).status_code: 401,
    }

    assert all(status == expected for status, expected in answers.items()), json.dumps(answers)


@pytest.mark.parametrize("form", ["xml", "anvl"])
def test_control_characters_do_not_spoil_the_answer(ada: Caller, form: str) -> None:
    fields = {"profile": "demo", "submitter": "ann\x0b\x00<&\ufffe\x1b[31m"}

    answer = post(ada, "/poster/submit", ("a.jpg", b"x"), responseForm=form, **fields)

    assert answer.status_code == 200, answer.text
    if form == "xml":
        ElementTree.fromstring(answer.text)
    assert not set(answer.text) & set("\x00\x0b\x1b")
