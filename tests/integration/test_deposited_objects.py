"""The objects of a deposit, as its page and the API show them: in the record, and once they are archived."""

from collections.abc import Iterator
from html import unescape

import pytest
import requests

from entrypoints.web.pages import one
from operations.jobs.batch_view import batch_view_of
from pipeline.inventory.archive import archive_batch
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.support.planted_deposit import NAME, ark_of, end, planted, to
from tests.support.web import OWN_FORM, Caller, Web, serving_board
from zkstate.connection.session import Session
from zkstate.record import batches, deletion, jobs


@pytest.fixture(scope="module")
def web(module_settings: Settings, record: Session) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def dora(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, name="dora")


def test_each_object_of_a_deposit_has_its_names_its_files_and_its_result(
    web: Web, record: Session, dora: Caller
) -> None:
    bid, jids = planted(web, record)

    answer = dora.get(f"/v1/batches/{bid}/objects").json()

    assert [one["jid"] for one in answer["objects"]] == jids
    assert [one["files"] for one in answer["objects"]] == [1, None, None, None]
    assert [one["ark"] for one in answer["objects"]] == [ark_of(jids[0]), None, None, None]
    results = [one["result"].partition(":")[0] for one in answer["objects"]]
    assert results == ["stored", "not stored", "waiting", "taken out by our staff"]
    assert answer["objects"][3]["result"] == "taken out by our staff: deposited twice"
    assert {(one["title"], *one["local_id"]) for one in answer["objects"]} == {("Hafen", "MUE-1")}
    assert answer["next"] is None


def test_a_list_of_objects_has_pages_and_is_for_those_who_may_see_the_deposit(
    web: Web, record: Session, dora: Caller
) -> None:
    bid, jids = planted(web, record)

    first = dora.get(f"/v1/batches/{bid}/objects?limit=3").json()
    rest = dora.get(f"/v1/batches/{bid}/objects?limit=3&cursor={first['next']}").json()

    assert [one["jid"] for one in first["objects"] + rest["objects"]] == jids
    assert rest["next"] is None
    other = web.caller(Role.DEPOSITOR, name=f"other-{bid}")
    assert other.get(f"/v1/batches/{bid}/objects").status_code == 404


def test_an_archived_deposit_has_its_name_and_its_objects(web: Web, record: Session, dora: Caller) -> None:
    bid, jids = planted(web, record)
    to(record, jids[2], JobState.COMPLETED)
    before = dora.get(f"/v1/batches/{bid}/objects").json()["objects"]
    inventory = open_inventory(web.context.settings.inventory)
    batch = batches.load(record, bid)
    archive_batch(inventory, batch, [jobs.load(record, jid) for jid in jids[:3]], by="retention")
    end(record, bid, Event.SUCCEED, Event.FAIL, Event.DELETE)
    deletion.remove_batch(record, batches.load(record, bid))

    after = dora.get(f"/v1/batches/{bid}/objects").json()["objects"]

    assert [one["result"] for one in after] == [one["result"] for one in before]
    assert [one["files"] for one in after] == [1, None, None, None]
    assert dora.get(f"/v1/batches/{bid}").json()["name"] == NAME


def test_the_page_of_a_large_deposit_writes_its_numbers_alike(
    web: Web, record: Session, dora: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    bid, _ = planted(web, record)
    large = {"total": 9000, "jobs": {JobState.COMPLETED: 5000, JobState.FAILED: 2000}}
    monkeypatch.setattr(one, "batch_view_of", lambda *known: batch_view_of(*known).model_copy(update=large))

    assert "5,000 of 9,000 objects stored, 2,000 not stored" in opened(web, dora, f"/batches/{bid}")


def test_the_page_of_a_deposit_is_about_its_objects_and_has_its_jobs_behind_details(
    web: Web, record: Session, dora: Caller
) -> None:
    bid, jids = planted(web, record)

    page = opened(web, dora, f"/batches/{bid}")
    of_operator = opened(web, web.caller(Role.OPERATOR, name=f"page-{bid}"), f"/batches/{bid}")
    later = opened(web, dora, f"/batches/{bid}?after={jids[2]}")

    assert "<h1>Nachlass Müller 1911</h1>" in page
    assert "<title>Nachlass Müller 1911: processing" in page
    assert "1 of 4 objects stored, 1 not stored" in page
    assert f'<a href="/objects/{ark_of(jids[0])}">' in page
    assert (
        page.index("not stored: ")
        < page.index("<summary>Details")
        < page.index(f'href="/jobs/{jids[0]}">jid')
    )
    assert "<summary>Details" not in of_operator
    assert of_operator.index("taken out by our staff: deposited twice") < of_operator.index("Jobs</h2>")
    assert "waiting: " not in later
    assert "taken out by our staff" in later


def opened(web: Web, caller: Caller, path: str) -> str:
    """The page, for a person with the caller's token."""
    person = requests.Session()
    person.post(f"{web.url}/login", data={"token": caller.token, "next": "/"}, headers=OWN_FORM, timeout=30)
    answer = person.get(f"{web.url}{path}", timeout=30)
    assert answer.status_code == 200, answer.text
    return unescape(" ".join(answer.text.split()))
