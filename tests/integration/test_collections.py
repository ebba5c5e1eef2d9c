"""The page, the report and the command of a collection, over real stores, for everybody who may see it."""

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from pipeline.attempt import UNATTENDED
from pipeline.inventory.growth import SpaceDay
from pipeline.inventory.tables import checks, findings, fixities, formats, growth, ingests
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind
from tasks.app import make_context
from tests.support import cli, planting
from tests.support.checks import identified
from tests.support.repository import OWNER, Repository, empty_inventory
from tests.support.web import Caller, Web, serving_board
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session

QUOTA = 1_000_000


@pytest.fixture(scope="module")
def repository(module_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    opened = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    (opened.settings.profiles / "demo.yaml").write_text(
        f"owner: {OWNER}\ncollections: ark:/99999/collection\ngiven_arks: ark:/99999/\n"
        f"description: Harbour views\nquota_bytes: {QUOTA}\nlimits:\n  object_files: 100\nreview: true\n"
    )
    (opened.settings.profiles / "maps.yaml").write_text(f"owner: {OWNER}\ncollections: ark:/99999/maps\n")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def arks(repository: Repository, record: Session) -> tuple[str, str]:
    """Two stored objects, and a failed deposit of ben."""
    batch = planting.acquired_batch(record, owner="token:ben", deposit_name="Hafen =1+1")
    planting.create_jobs(record, batch, planting.plan(2), planting.WORKING, "test", UNATTENDED)
    job = planting.one_job(record)
    planting.apply_event(record, job, Event.FAIL, FailureKind.CONTENT)
    jobs = (repository.job(number, {"a.jpg": f"photo {number}", "b.txt": "text"}) for number in (1, 2))
    first, second = (repository.recorded(job).ark for job in jobs)
    return first, second


@pytest.fixture(scope="module")
def web(module_settings: Settings, repository: Repository, arks: tuple[str, str]) -> Iterator[Web]:
    own = module_settings.model_copy(update={"profiles": repository.settings.profiles})
    with serving_board(own) as running:
        yield running


@pytest.fixture(scope="module")
def olga(web: Web) -> Caller:
    return web.caller(Role.OPERATOR, name="olga")


def report(caller: Caller, name: str = "demo") -> dict[str, Any]:
    answer = caller.get(f"/v1/collections/{name}/report")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def run_beat(web: Web) -> None:
    worker = make_context(web.context.settings)
    for _ in range(5):  # a run ends early if the session is in doubt
        worker.app.tasks["beat.growth"]()
    worker.drop_session()


def test_deposits_show_up_in_the_report_and_on_the_page(olga: Caller, arks: tuple[str, str]) -> None:
    shown = report(olga)
    month = f"{now():%Y-%m}"

    assert (shown["stored"]["objects"], shown["stored"]["versions"], shown["stored"]["files"]) == (2, 2, 4)
    assert shown["complete"]
    assert shown["months"] == [{"month": month, "added": shown["stored"], "stored": shown["stored"]}]
    assert {one["name"]: one["files"] for one in shown["formats"]["formats"]} == {
        "image/jpeg": 2,
        "text/plain": 2,
    }
    quota = {"name": "quota_bytes", "limit": QUOTA, "used": shown["stored"]["bytes"]}
    assert quota in shown["quotas"]
    assert shown["forecast"] is None  # the data is not 14 days old
    text = olga.get("/collections/demo").text
    for words in ("Harbour views", "<b>2</b> <small>objects</small>", "by media type", "image/jpeg", month):
        assert words in text, words
    assert "An operator approves each deposit before it is stored." in text
    assert "An object may have 100 files." in text
    assert "kept current" in text
    assert "style=" not in text


@pytest.fixture
def formats_identified(repository: Repository, arks: tuple[str, str]) -> Iterator[None]:
    """Of the first object, until the end of the test."""
    repository.inventory.add_checks(arks[0], 1, [identified({"a.jpg": "fmt/43", "b.txt": "x-fmt/111"})])
    yield
    for rows in (formats.delete().where(formats.c.check_name != ""), findings.delete(), checks.delete()):
        repository.inventory.database.run(rows)


@pytest.mark.usefixtures("formats_identified")
def test_a_check_that_identifies_formats_replaces_media_types(olga: Caller) -> None:
    formats = report(olga)["formats"]
    assert formats["check"] == "pronom"
    assert formats["formats"] == [{"name": "fmt/43", "files": 1}, {"name": "x-fmt/111", "files": 1}]
    assert "as pronom identified them" in olga.get("/collections/demo").text


def test_everybody_sees_her_own_collections_and_of_them_her_own_deposits(
    web: Web, olga: Caller, arks: tuple[str, str]
) -> None:
    anna = web.caller(Role.DEPOSITOR, ["demo"], name="anna")
    ben = web.caller(Role.DEPOSITOR, ["demo"], name="ben")
    other = web.caller(Role.OPERATOR, ["maps"], name="other")
    admin = web.caller(Role.ADMIN, name="ada")

    assert report(anna)["stored"] == report(olga)["stored"]
    assert report(anna)["deposits"] == report(anna)["failures"] == []
    assert [one["name"] for one in report(ben)["deposits"]] == ["Hafen =1+1"]
    assert len(report(olga)["deposits"]) == 2
    assert len(report(olga)["failures"]) == 1
    for path in ("/v1/collections/demo/report", "/collections/demo", "/v1/collections/nothing/report"):
        assert other.get(path).status_code == 404, path
    assert report(other, "maps")["stored"]["objects"] == 0
    for caller in (anna, ben, olga):
        assert report(caller)["tokens"] is None
    assert {"name": "anna", "role": "depositor"} in report(admin)["tokens"]
    assert "other" not in {one["name"] for one in report(admin)["tokens"]}
    assert report(anna)["storage"] is None
    assert report(olga)["storage"] is not None
    assert "/collections/demo" in anna.get("/collections").text
    assert "/collections/demo" not in other.get("/collections").text


def test_damage_is_counted_for_all_and_named_for_operators(
    web: Web, olga: Caller, repository: Repository, arks: tuple[str, str]
) -> None:
    repository.inventory.database.run(update(fixities).values(damaged=1).where(fixities.c.inv_object_id == 1))
    depositor = web.caller(Role.DEPOSITOR, ["demo"], name="dora")

    assert report(olga)["fixity"]["damaged_objects"] == [arks[0]]
    assert report(depositor)["fixity"]["damaged"] == 1
    assert report(depositor)["fixity"]["damaged_objects"] == []
    assert "Alarm: 1 object is damaged." in olga.get("/collections/demo").text


def test_the_report_is_csv_for_spreadsheets_without_formulas(olga: Caller) -> None:
    by_form = olga.get("/v1/collections/demo/report?form=csv")
    by_header = olga.get("/v1/collections/demo/report", headers={"Accept": "text/csv"})

    assert by_form.headers["content-type"] == by_header.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(by_form.content.decode("utf-8-sig"))))
    facts = {(row["section"], row["name"], row["measure"]): row["value"] for row in rows}
    assert facts["stored", "", "objects"] == "2"
    assert facts["quotas", "quota_bytes", "limit"] == str(QUOTA)
    assert facts["months", f"{now():%Y-%m}", "added.objects"] == "2"
    assert any(row["value"] == "Hafen =1+1" for row in rows)
    assert all(not row["value"].startswith("=") for row in rows)


@pytest.mark.usefixtures("formats_identified")
def test_the_command_prints_the_report(web: Web, olga: Caller) -> None:
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": olga.token}
    shown = cli.run(web.context.settings, "collection", "demo", **site)
    as_json = cli.run(web.context.settings, "collection", "demo", "--json", **site)
    unknown = cli.run(web.context.settings, "collection", "nothing", **site)

    assert shown.code == 0, shown.err
    for words in ("2 objects", "of the agreed 1.0 MB", "fmt/43", "Hafen =1+1", "An operator approves"):
        assert words in shown.out, words
    assert '"objects": 2' in as_json.out
    assert unknown.code != 0
    assert "there is no collection nothing" in unknown.err


def test_scheduled_work_counts_what_an_earlier_release_stored(
    web: Web, olga: Caller, record: Session, repository: Repository
) -> None:
    before = report(olga)["stored"]
    for counts in (growth, formats):
        repository.inventory.database.run(counts.delete())
    repository.inventory.database.run(update(ingests).values(counted=None))
    assert not report(olga)["complete"]
    assert "is being counted" in olga.get("/collections/demo").text
    worker = make_context(web.context.settings)
    with single_flight(record, "growth"):
        worker.app.tasks["beat.growth"]()  # another process is at it
    worker.drop_session()
    assert not repository.inventory.all_counted()

    run_beat(web)

    assert report(olga)["complete"]
    assert report(olga)["stored"] == before


def test_a_figure_of_storage_is_kept_once_a_day(web: Web, olga: Caller, repository: Repository) -> None:
    run_beat(web)
    run_beat(web)

    (day,) = [one for one in report(olga)["storage"]["days"] if one["day"] == f"{now():%Y-%m-%d}"]
    assert 0 < day["working_used"] <= day["working_total"]
    assert 0 < day["root_free"] <= day["root_total"]
    assert day["day"] in olga.get("/space").text


def test_a_forecast_names_the_day_and_its_error(web: Web, olga: Caller, repository: Repository) -> None:
    run_beat(web)
    today = now().date()
    for days in range(1, 100):
        added = {"profile": "maps", "objects": 1, "versions": 1, "files": 1, "bytes": 1000}
        row = {"day": (today - timedelta(days=days)).isoformat(), **added}
        repository.inventory.database.run(growth.insert().values(**row))
    profile = repository.settings.profiles / "maps.yaml"
    profile.write_text(profile.read_text() + f"quota_bytes: {99_000 + 89_000}\n")

    made = report(olga, "maps")["forecast"]
    assert made["used"] == 99_000
    assert made["rate"] == pytest.approx(89_000 / 90)
    assert made["full_on"] == (today + timedelta(days=90)).isoformat()
    assert made["median_error"] == 0
    text = olga.get("/collections/maps").text
    full = today + timedelta(days=90)
    assert f"Full on {full.day} {full:%B %Y} at the rate of the last 90 days" in text
    assert report(olga)["storage"]["forecast"]["full_on"] != made["full_on"]
    enough = SpaceDay(today + timedelta(days=1), 10, 5, 10_000_000, 100_000)
    repository.inventory.enter_space(enough)
    root = report(olga)["storage"]["forecast"]
    assert (root["used"], root["capacity"]) == (9_900_000, 10_000_000)
    assert root["full_on"] > today.isoformat()
