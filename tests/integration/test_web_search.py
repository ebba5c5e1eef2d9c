"""Objects by a text, over the API, the pages and the command line, for those who may see them."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from sqlalchemy import update

from pipeline.attempt import UNATTENDED
from pipeline.inventory.search import index
from pipeline.inventory.search.index import Indexing
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import ingests
from pipeline.principal import Role
from pipeline.settings import Settings
from tasks.app import make_context
from tasks.scheduled import inventory
from tests.support import cli, planting
from tests.support.repository import Repository, empty_inventory
from tests.support.web import Caller, Web, serving
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.record import batches

NOBODY = "bid0000999999"


@pytest.fixture(scope="module")
def repository(module_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    opened = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def arks(repository: Repository, record: Session) -> dict[str, str]:
    """The objects of anna and of ben."""
    batch = planting.acquired_batch(record, owner="token:anna")
    planting.create_jobs(record, batch, planting.plan(2), planting.WORKING, "test", UNATTENDED)
    own = batch.bid
    facts: dict[str, dict[str, Any]] = {
        "anna": {
            "owner": "token:anna",
            "erc_what": "Brief an Müller",
            "batch_id": own,
            "local_id": ("MUE-003",),
        },
        "ben": {
            "owner": "token:ben",
            "erc_what": "Briefe aus Köln",
            "batch_id": NOBODY,
            "local_id": ("BEN 1",),
        },
    }
    return {
        name: repository.recorded(repository.job(number, {"img_003.jpg": name}, **given)).ark
        for number, (name, given) in enumerate(facts.items(), 1)
    }


@pytest.fixture(scope="module")
def web(module_settings: Settings, arks: dict[str, str]) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def anna(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, name="anna")


@pytest.fixture(scope="module")
def viewer(web: Web) -> Caller:
    return web.caller(Role.VIEWER, name="viewer")


def hits(caller: Caller, query: str) -> list[str]:
    answer = caller.get("/v1/objects", params={"q": query})
    assert answer.status_code == 200, answer.text
    return [one["ark"] for one in answer.json()["objects"]]


def test_everybody_finds_the_objects_that_she_may_see(
    web: Web, anna: Caller, viewer: Caller, arks: dict[str, str]
) -> None:
    operator = web.caller(Role.OPERATOR, name="olga")
    elsewhere = web.caller(Role.VIEWER, ["other"], name="elsewhere")
    stranger = web.caller(Role.DEPOSITOR, name="stranger")

    for query in ("brief", "img_003.jpg", "img_0", arks["ben"]):
        both = [arks["ben"], arks["anna"]] if query != arks["ben"] else [arks["ben"]]
        assert hits(operator, query) == hits(viewer, query) == both, query
        assert hits(anna, query) == [ark for ark in both if ark == arks["anna"]], query
        assert hits(elsewhere, query) == hits(stranger, query) == [], query


def test_a_page_of_hits_continues_after_the_one_before(viewer: Caller, arks: dict[str, str]) -> None:
    first = viewer.get("/v1/objects?q=brief&limit=1").json()
    second = viewer.get("/v1/objects", params={"q": "brief", "limit": 1, "cursor": first["next"]}).json()

    assert [first["objects"][0]["ark"], second["objects"][0]["ark"]] == [arks["ben"], arks["anna"]]
    assert second["next"] is None


def test_an_object_has_its_local_id_as_an_address(anna: Caller, arks: dict[str, str]) -> None:
    for name in ("MUE-003", "mue-003", arks["anna"].rpartition("/")[2]):
        assert anna.get(f"/v1/objects/{name}").json()["object"]["ark"] == arks["anna"]
        assert arks["anna"] in anna.get(f"/objects/{name}").text
    for name in ("BEN 1", arks["ben"].rpartition("/")[2]):
        assert anna.get(f"/v1/objects/{name}").status_code == 404


def test_the_page_of_objects_shows_hits_and_says_what_is_searched(anna: Caller, arks: dict[str, str]) -> None:
    page = anna.get("/objects?q=img_0").text
    for text in (arks["anna"], "Brief an Müller", "img_003.jpg", "demo"):
        assert text in page, text
    assert arks["ben"] not in page
    assert (
        "A text is looked for in title, creator, date, ARK" in anna.get("/objects?q=nothing-like-this").text
    )


def test_the_field_at_the_top_leads_to_an_object_or_to_a_list_of_objects(
    anna: Caller, viewer: Caller, arks: dict[str, str]
) -> None:
    for text in ("MUE-003", arks["anna"].rpartition("/")[2], arks["anna"]):
        assert unquote(anna.get("/find", params={"q": text}).url).endswith(f"/objects/{arks['anna']}")
    listed = viewer.get("/find", params={"q": "img_003.jpg"})
    assert "/objects?q=img_003.jpg" in listed.url
    assert arks["ben"] in listed.text


def test_the_command_line_finds_objects_and_shows_one_by_its_local_id(
    web: Web, anna: Caller, arks: dict[str, str]
) -> None:
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": anna.token}
    settings = web.context.settings

    found = cli.run(settings, "objects", "muller", "img_0", **site)
    nothing = cli.run(settings, "objects", "köln", **site)
    shown = cli.run(settings, "object", "MUE-003", "--no-verify", **site)

    assert arks["anna"] in found.out
    assert "img_003.jpg" in found.out
    assert "no object has all of these words" in " ".join(nothing.err.split())
    assert shown.code == 0, shown.err
    assert arks["anna"] in shown.out


@pytest.fixture
def fresh(module_settings: Settings, arks: dict[str, str]) -> Iterator[Web]:
    """A web process that remembers nothing about the index."""
    with serving(module_settings) as running:
        yield running


def index_all(web: Web) -> None:
    worker = make_context(web.context.settings)
    for _ in range(5):  # a run ends early if the session is in doubt
        worker.app.tasks["beat.index_objects"]()
    worker.drop_session()


def test_scheduled_work_enters_what_an_earlier_release_recorded(
    fresh: Web, anna: Caller, viewer: Caller, record: Session, repository: Repository, arks: dict[str, str]
) -> None:
    anna, viewer = (replace(caller, url=fresh.url) for caller in (anna, viewer))
    repository.inventory.database.run(update(ingests).values(index_number=0, depositor=None))
    objects = repository.inventory.indexing().objects  # type: ignore[union-attr]
    answer = viewer.get("/v1/objects?q=brief").json()
    assert answer["indexing"] == {"indexed": 0, "objects": objects}
    assert f"0 of {objects} objects are indexed" in viewer.get("/objects?q=brief").text
    assert hits(anna, "brief") == []
    worker = make_context(fresh.context.settings)
    with single_flight(record, inventory.INDEXING):
        worker.app.tasks["beat.index_objects"]()  # another process is at it
    worker.drop_session()
    assert repository.inventory.indexing() is not None

    index_all(fresh)

    assert repository.inventory.indexing() is None
    assert viewer.get("/v1/objects?q=brief").json()["indexing"] is None
    assert hits(anna, "brief") == [arks["anna"]]
    # neither the record nor the archive knows ben's batch
    assert hits(fresh.caller(Role.DEPOSITOR, name="ben"), "brief") == []


def test_deposits_are_recorded_while_an_inventory_is_indexed(
    web: Web, record: Session, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions that follow each other at once would leave SQLite's lock to nobody else."""
    monkeypatch.setattr(index, "PORTION", 1)
    batch = planting.acquired_batch(record)
    planting.create_jobs(record, batch, planting.plan(33), planting.WORKING, "test", UNATTENDED)
    numbers = [int(jid[3:]) for jid in batches.all_jobs(record, batch.bid)]
    for number in numbers[:30]:
        repository.recorded(repository.job(number, batch_id=batch.bid))
    repository.inventory.database.run(update(ingests).values(index_number=0))
    begun, left = threading.Event(), list[Indexing | None]()
    enter = SqlInventory.index_versions

    def announced(*given: Any) -> int:
        entered = enter(*given)
        begun.set()
        return entered

    monkeypatch.setattr(SqlInventory, "index_versions", announced)

    def deposit() -> None:
        assert begun.wait(60)
        for number in numbers[30:]:
            repository.recorded(repository.job(number, batch_id=batch.bid))
        left.append(repository.inventory.indexing())

    depositing = threading.Thread(target=deposit)
    depositing.start()
    index_all(web)
    depositing.join()

    assert left[0] is not None
    assert 0 < left[0].indexed < left[0].objects
    assert repository.inventory.indexing() is None


def test_searches_count_what_is_indexed_once_a_minute(
    fresh: Web, viewer: Caller, repository: Repository
) -> None:
    viewer = replace(viewer, url=fresh.url)
    repository.inventory.database.run(update(ingests).values(index_number=0))
    before = viewer.get("/v1/objects?q=brief").json()["indexing"]

    index_all(fresh)
    repository.inventory.database.run(update(ingests).where(ingests.c.id == 1).values(index_number=0))

    assert before is not None
    assert repository.inventory.indexing() != before
    assert viewer.get("/v1/objects?q=brief").json()["indexing"] == before
    index_all(fresh)
