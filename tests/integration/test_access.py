"""Who may do what with a stored object: the table of docs/access.md, tried out."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha512
from pathlib import Path

import pytest
from sqlalchemy import select

from operations.objects import retrieval
from pipeline.attempt import UNATTENDED
from pipeline.fixity import ContentFile
from pipeline.inventory import embargoes
from pipeline.inventory.tables import objects
from pipeline.principal import Role
from pipeline.records import SubmissionMode
from pipeline.settings import Settings
from pipeline.storage.base import StoreRequest
from tasks.app import make_context
from tests.support import cli, planting
from tests.support.recordings import recording
from tests.support.repository import Repository, empty_inventory
from tests.support.stores import JOBS, Store, flip
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.fleet import counters
from zkstate.record import batches

TABLE = Path(__file__).parents[2] / "docs" / "access.md"
END = datetime(2031, 1, 31, tzinfo=UTC)
EMBARGO = "mrt-embargo.txt"
ROUTES = {
    "metadata": "/v1/objects/{ark}",
    "preview": "/objects/{ark}?version=1&file=producer/a.txt",
    "download": "/v1/objects/{ark}/versions/1/files/producer/a.txt",
    "bag": "/v1/objects/{ark}/versions/1/bag",
    "list": "/v1/objects",
}
CALLERS = {
    "viewer of the collection": (Role.VIEWER, ["demo"], "viewer-here"),
    "viewer of another collection": (Role.VIEWER, ["other"], "viewer-there"),
    "depositor of the object": (Role.DEPOSITOR, ["demo"], "scans"),
    "other depositor of the collection": (Role.DEPOSITOR, ["demo"], "maps"),
    "operator of the collection": (Role.OPERATOR, ["demo"], "operator-here"),
    "operator of another collection": (Role.OPERATOR, ["other"], "operator-there"),
}


def rows() -> dict[str, dict[str, str]]:
    """Who -> what -> the cell."""
    of_objects, _, _ = TABLE.read_text().partition("\n#")  # another table follows under a heading
    lines = [line for line in of_objects.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[2:]}


@pytest.fixture(scope="module")
def store(
    module_settings: Settings, record: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    repository = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    counters.raise_to(record, "job", JOBS)
    yield Store(repository)
    repository.close()


def stored(record: Session, store: Store, files: dict[str, str]) -> str:
    """An object of the depositor `scans`."""
    batch = planting.acquired_batch(record, owner="token:scans")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    jid = batches.all_jobs(record, batch.bid)[0]
    job = store.repository.job(int(jid[3:]), files, batch_id=batch.bid, owner="token:scans")
    return store.repository.recorded(job).ark


@pytest.fixture(scope="module")
def free(record: Session, store: Store) -> str:
    return stored(record, store, {"a.txt": "alpha", EMBARGO: "embargoEndDate: none"})


@pytest.fixture(scope="module")
def embargoed(record: Session, store: Store) -> str:
    return stored(record, store, {"a.txt": "secret", EMBARGO: f"embargoEndDate: {END:%Y-%m-%d}"})


@pytest.fixture(scope="module")
def web(module_settings: Settings, free: str, embargoed: str) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def callers(web: Web) -> dict[str, Caller]:
    return {who: web.caller(*facts) for who, facts in CALLERS.items()}


def test_the_table_has_every_caller_and_every_use() -> None:
    assert list(rows()) == list(CALLERS)
    assert {tuple(row) for row in rows().values()} == {tuple(ROUTES)}


@pytest.mark.parametrize("who", CALLERS)
@pytest.mark.parametrize("use", ROUTES)
def test_the_table_is_what_happens(
    callers: dict[str, Caller], free: str, embargoed: str, who: str, use: str
) -> None:
    cell = rows()[who][use]
    assert cell in ("yes", "no", "after an embargo")
    for ark, expected in ((free, cell != "no"), (embargoed, cell == "yes")):
        answer = callers[who].get(ROUTES[use].format(ark=ark))
        if use == "list":
            got = ark in [one["ark"] for one in answer.json()["objects"]]
        elif use == "preview":
            got = '<pre class="preview"' in answer.text
        else:
            got = answer.ok
            assert answer.status_code in ((200, 403) if cell == "after an embargo" else (200, 404))
        assert got is expected, (ark, answer.status_code, answer.text)


def test_an_embargo_is_named_with_its_end(callers: dict[str, Caller], embargoed: str) -> None:
    depositor = callers["depositor of the object"]
    refused = depositor.get(ROUTES["download"].format(ark=embargoed))

    assert (refused.status_code, refused.json()["code"]) == (403, "embargoed")
    assert "until 2031-01-31 00:00 UTC" in refused.json()["detail"]
    known = depositor.get(f"/v1/objects/{embargoed}").json()["object"]
    assert known["embargo"] == {"until": "2031-01-31T00:00:00Z"}


def test_an_embargo_is_over_at_its_end_and_not_before(
    callers: dict[str, Caller], embargoed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ROUTES["download"].format(ark=embargoed)
    viewer = callers["viewer of the collection"]

    monkeypatch.setattr(retrieval, "now", lambda: END - timedelta(milliseconds=1))
    assert viewer.get(path).status_code == 403
    monkeypatch.setattr(retrieval, "now", lambda: END)
    assert viewer.get(path).text == "secret"


def test_the_page_and_the_command_line_say_whether_an_embargo_holds(
    web: Web, record: Session, store: Store, callers: dict[str, Caller], embargoed: str
) -> None:
    over = stored(record, store, {"a.txt": "alpha", EMBARGO: "embargoEndDate: 2001-01-31"})
    viewer = callers["viewer of the collection"]

    pages = {ark: viewer.get(f"/objects/{ark}").text for ark in (embargoed, over)}
    printed = {ark: cli.run(web.context.settings, "object", ark).out for ark in (embargoed, over)}

    assert "The files are under an embargo until" in pages[embargoed]
    assert "The embargo ended" in pages[over]
    assert "under an embargo" not in pages[over]
    assert "until 2031-01-31 00:00 UTC: only operators get the files" in printed[embargoed]
    assert "ended 2001-01-3" in printed[over]


def forget(store: Store, ark: str) -> None:
    """As an earlier release recorded the object."""
    known = select(objects.c.id).where(objects.c.ark == ark).scalar_subquery()
    table = embargoes.embargoes
    store.repository.inventory.database.run(table.delete().where(table.c.inv_object_id == known))


def read_embargoes(settings: Settings) -> None:
    worker = make_context(settings)
    worker.app.tasks["beat.embargoes"]()
    worker.drop_session()


def test_an_embargo_that_was_not_read_holds_until_scheduled_work_has_read_it(
    web: Web, store: Store, callers: dict[str, Caller], free: str
) -> None:
    path = ROUTES["download"].format(ark=free)
    viewer = callers["viewer of the collection"]
    forget(store, free)

    assert "whose end is not known" in viewer.get(path).json()["detail"]
    read_embargoes(web.context.settings)
    assert viewer.get(path).text == "alpha"


def test_an_embargo_that_storage_cannot_deliver_holds_until_it_can(
    web: Web, record: Session, store: Store, callers: dict[str, Caller]
) -> None:
    ark = stored(record, store, {"a.txt": "alpha", EMBARGO: "embargoEndDate: none "})
    path, viewer = ROUTES["download"].format(ark=ark), callers["viewer of the collection"]
    forget(store, ark)
    store.change(ark, f"v1/content/producer/{EMBARGO}", flip)
    read_embargoes(web.context.settings)
    assert viewer.get(path).status_code == 403

    store.change(ark, f"v1/content/producer/{EMBARGO}", flip)
    read_embargoes(web.context.settings)
    assert viewer.get(path).text == "alpha"


def test_what_is_no_embargo_that_can_be_read_is_one_without_an_end(
    web: Web, store: Store, callers: dict[str, Caller]
) -> None:
    ark, jid = "ark:/99999/fk4odd", "jid0000000050"
    texts = {"producer/a.txt": b"alpha", embargoes.PATH: b"embargoEndDate: soon"}  # refused in a deposit
    files = tuple(
        ContentFile(path, Path(path), len(data), sha512(data).hexdigest(), data=data)
        for path, data in texts.items()
    )
    request = StoreRequest(ark, jid, SubmissionMode.ADD, files)
    version = store.repository.storage.store(request, lambda: None)
    store.repository.inventory.record(recording(version=version, jid=jid))
    read_embargoes(web.context.settings)

    answer = callers["viewer of the collection"].get(ROUTES["download"].format(ark=ark))
    assert "whose end is not known" in answer.json()["detail"]
    assert store.repository.inventory.unread_embargoes(0, 10) == ()


def test_a_new_version_without_the_file_ends_the_embargo_and_an_update_keeps_it(
    record: Session, store: Store, web: Web, callers: dict[str, Caller]
) -> None:
    files = {"a.txt": "alpha", EMBARGO: f"embargoEndDate: {END:%Y-%m-%d}"}
    ark = stored(record, store, files)
    made, path = store.repository, ROUTES["download"].format(ark=ark)
    viewer = callers["viewer of the collection"]
    more = {"primary_id": ark, "submission_mode": SubmissionMode.UPDATE}

    made.recorded(made.job(51, {"b.txt": "beta"}, **more))
    assert made.described(ark).embargo is not None
    assert viewer.get(path).status_code == 403
    made.recorded(made.job(52, {"a.txt": "x"}, primary_id=ark, submission_mode=SubmissionMode.ADD))
    assert made.described(ark).embargo is None
    assert viewer.get(path).text == "alpha"
