"""Objects over the REST API: what a caller may see of a stored object, and proofs of its custody."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.objects.objects import known_object
from pipeline.attempt import UNATTENDED
from pipeline.checks import Overrule
from pipeline.principal import Role
from pipeline.records import Job
from pipeline.settings import Settings
from tasks.app import make_context
from tests.support import cli, planting
from tests.support.checks import found_in, identified, scanned
from tests.support.recordings import FIRST_DAY
from tests.support.repository import Repository, empty_inventory
from tests.support.schemas import assert_valid
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.fleet import notes
from zkstate.fleet.notes import RepeatedCheck
from zkstate.record import batches, jobs

OVERRULE = Overrule(by="Ann", at=FIRST_DAY, reason="a test file")


@pytest.fixture(scope="module")
def job(record: Session) -> Job:
    """A job of the depositor `scans`."""
    batch = planting.acquired_batch(record, owner="token:scans")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    return jobs.load(record, batches.all_jobs(record, batch.bid)[0])


@pytest.fixture(scope="module")
def ark(module_settings: Settings, job: Job, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The object of that job."""
    repository = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    own = {"batch_id": job.bid, "owner": "token:scans"}
    stored = repository.job(int(job.jid[3:]), {"a.txt": "a", "b.txt": "b"}, **own)
    version = repository.recorded(stored)
    scan = scanned("a.txt", found_in("b.txt", "Eicar")).model_copy(update={"overruled": OVERRULE})
    repository.inventory.add_checks(version.ark, 1, (scan, identified({"a.txt": "x-fmt/111"})))
    yield version.ark
    repository.close()


@pytest.fixture(scope="module")
def web(module_settings: Settings, ark: str) -> Iterator[Web]:
    with serving(module_settings) as running:
        yield running


@pytest.fixture(scope="module")
def scans(web: Web) -> Caller:
    return web.caller(Role.DEPOSITOR, name="scans")


def test_a_depositor_proves_its_own_object_and_follows_the_progress(
    web: Web, scans: Caller, ark: str
) -> None:
    answer = scans.post(f"/v1/objects/{ark}/proofs", {"version": 1})
    assert answer.status_code == 202, answer.text
    place = answer.headers["Location"]
    assert place == f"/v1/objects/{ark}/proofs/{answer.json()['id']}"

    worker = make_context(web.context.settings)
    worker.app.tasks["beat.proofs"]()
    worker.drop_session()

    proof = scans.get(place).json()
    assert proof["state"] == "done", proof
    assert proof["custody"]["agrees"]
    assert proof["bytes_read"] == proof["bytes_total"] > 0


def test_a_proof_of_no_stated_version_is_of_the_current_one(scans: Caller, ark: str) -> None:
    assert scans.post(f"/v1/objects/{ark}/proofs").json()["version"] == 1
    assert scans.post(f"/v1/objects/{ark}/proofs", {"version": 2}).status_code == 422


def test_what_a_caller_may_not_see_has_no_proof(web: Web, scans: Caller, ark: str) -> None:
    path = f"/v1/objects/{ark}/proofs"
    place = scans.post(path).headers["Location"]

    for other in (web.caller(Role.DEPOSITOR, name="maps"), web.caller(Role.VIEWER, ["other"], name="other")):
        assert other.get(f"/v1/objects/{ark}").status_code == 404
        assert other.post(path).status_code == 404
        assert other.get(place).status_code == 404
    assert scans.post("/v1/objects/ark:/99999/fk4nothing/proofs").status_code == 404
    assert scans.get(f"{path}/0123456789abcdef").status_code == 404


def test_only_the_staff_see_where_an_object_is_in_storage(
    web: Web, scans: Caller, job: Job, ark: str
) -> None:
    operator = web.caller(Role.OPERATOR, name="staff")
    place = known_object(web.context.site.inventory(), ark).versions[0].storage_url
    assert place in operator.get(f"/v1/objects/{ark}").text

    for path in (f"/v1/objects/{ark}", f"/v1/jobs/{job.jid}/premis", f"/objects/{ark}"):
        answer = scans.get(path)
        assert (answer.status_code, place in answer.text) == (200, False), path


def test_the_files_of_a_job_are_listed_page_by_page(scans: Caller, job: Job, ark: str) -> None:
    first = scans.get(f"/v1/jobs/{job.jid}/files?limit=1")
    link = first.links["next"]["url"]
    rest = scans.get(link.replace("limit=1", "limit=500")).json()

    page = first.json()
    assert (page["ark"], page["version"], len(page["files"])) == (ark, 1, 1)
    assert page["total"] == 1 + len(rest["files"])
    assert {"producer/a.txt", "producer/b.txt"} <= {file["path"] for file in page["files"] + rest["files"]}
    assert rest["next"] is None
    assert all(file["digest"].startswith("sha512:") for file in rest["files"])
    assert scans.get(f"/v1/jobs/{job.jid}/files?cursor=bm8").status_code == 422


def test_the_premis_document_of_a_job_is_that_of_its_object(scans: Caller, job: Job, ark: str) -> None:
    answer = scans.get(f"/v1/jobs/{job.jid}/premis")

    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/xml"
    assert ark in answer.text
    assert_valid(answer.content)


def test_a_job_that_stored_nothing_has_no_files_and_no_premis(scans: Caller, record: Session) -> None:
    batch = planting.acquired_batch(record, owner="token:scans")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    jid = batches.all_jobs(record, batch.bid)[0]

    files = scans.get(f"/v1/jobs/{jid}/files").json()

    assert (files["files"], files["version"]) == ([], None)
    assert scans.get(f"/v1/jobs/{jid}/premis").status_code == 404


def test_the_files_of_anothers_job_are_not_there(web: Web, job: Job, ark: str) -> None:
    maps = web.caller(Role.DEPOSITOR, name="maps-files")

    assert maps.get(f"/v1/jobs/{job.jid}/files").status_code == 404
    assert maps.get(f"/v1/jobs/{job.jid}/premis").status_code == 404


def test_an_object_is_read_and_written_as_premis_over_the_api(
    web: Web, scans: Caller, ark: str, tmp_path: Path
) -> None:
    alone = web.context.settings.model_copy(update={"zk_hosts": "127.0.0.1:1", "home": tmp_path / "away"})
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": scans.token}

    written = cli.run(alone, "object", ark, "--no-verify", "--premis", "object.xml", **site)
    recorded = cli.run(alone, "object", ark, "--all-versions", "--no-verify", "--json", **site)

    assert (written.code, recorded.code) == (0, 0), written.err + recorded.err
    custody = scans.get(f"/v1/objects/{ark}/custody").json()["custody"]
    assert (custody["read"], custody["agrees"], custody["complete"]) == (True, True, True)
    assert recorded.json()["custody"]["read"] is False
    assert b"premis" in (tmp_path / "away" / "object.xml").read_bytes()
    assert scans.get(f"/v1/objects/{ark}/custody?version=9").status_code == 422
    assert web.caller(Role.VIEWER, ["other"]).get(f"/v1/objects/{ark}/custody").status_code == 404


SEARCHES = ("code=x-fmt/111", "verdict=found", "check=clamav", "check=pronom&verdict=unchecked", "")


def test_objects_are_listed_for_those_who_may_see_them(web: Web, scans: Caller, ark: str) -> None:
    def listed(caller: Caller, query: str) -> list[str]:
        return [one["ark"] for one in caller.get(f"/v1/objects?{query}").json()["objects"]]

    seeing = (
        scans,
        web.caller(Role.VIEWER, ["demo"], name="demo-list"),
        web.caller(Role.OPERATOR, name="all-list"),
    )
    blind = (
        web.caller(Role.DEPOSITOR, name="maps-list"),
        web.caller(Role.VIEWER, ["other"], name="other-list"),
    )
    for query in SEARCHES:
        assert [listed(caller, query) for caller in seeing] == [[ark]] * len(seeing), query
        assert [listed(caller, query) for caller in blind] == [[]] * len(blind), query


def test_a_list_says_what_was_found_where(scans: Caller, ark: str) -> None:
    (virus,) = scans.get("/v1/objects?check=clamav&verdict=found").json()["objects"]
    (silent,) = scans.get("/v1/objects?check=pronom&verdict=unchecked").json()["objects"]
    (never,) = scans.get("/v1/objects?check=jhove&verdict=unchecked").json()["objects"]

    assert [(each["path"], each["version"], each["code"]) for each in virus["matches"]] == [
        ("producer/b.txt", 1, "Eicar")
    ]
    assert (silent["matches"], silent["never_checked"]) == ([], [])
    assert (never["matches"], never["never_checked"]) == ([], [1])
    assert scans.get("/v1/objects?code=x-fmt/112").json() == {"objects": [], "indexing": None, "next": None}
    assert scans.get("/v1/objects?verdict=clean").status_code == 422


def test_the_page_of_an_object_shows_its_checks_and_what_was_not_checked(scans: Caller, ark: str) -> None:
    shown = scans.get(f"/objects/{ark}").text

    for text in ("1.4.1/27500", "clamav: found (Eicar)", "pronom: not checked", "x-fmt/111", "a test file"):
        assert text in shown, text


def test_the_page_of_objects_lists_what_the_form_asks_for(web: Web, scans: Caller, ark: str) -> None:
    found = scans.get("/objects?code=x-fmt%2F111&verdict=&check=").text
    assert f'href="/objects/{ark}"' in found
    assert "producer/a.txt of version 1" in found
    assert (
        "No object."
        in web.caller(Role.VIEWER, ["other"], name="other-page").get("/objects?verdict=found").text
    )


def test_what_older_signatures_have_read_is_listed_once_a_worker_has_newer_ones(
    web: Web, record: Session, scans: Caller, ark: str
) -> None:
    assert scans.get("/v1/objects?outdated=true").json()["objects"] == []
    notes.note_repeated_checks(record, (RepeatedCheck(check="pronom", version="v120"),))
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": scans.token}

    (listed,) = scans.get("/v1/objects?outdated=true").json()["objects"]
    other = scans.get("/v1/objects?outdated=true&check=clamav").json()["objects"]
    page = scans.get("/objects?outdated=true").text
    shown = cli.run(web.context.settings, "objects", "--outdated", **site)
    notes.note_repeated_checks(record, ())

    (run,) = listed["outdated"]
    assert (listed["ark"], run["version"], run["check"], run["check_version"]) == (ark, 1, "pronom", "v119")
    assert other == []
    assert "version 1: last checked by pronom v119" in page
    assert "version 1: last checked by pronom v119" in " ".join(shown.out.split())


def test_a_list_of_objects_without_a_condition_has_no_empty_column(web: Web, scans: Caller, ark: str) -> None:
    shown = cli.run(web.context.settings, "objects", ARKLINE_URL=web.url, ARKLINE_TOKEN=scans.token)

    assert ark in shown.out
    assert "checks" not in shown.out


def test_objects_are_listed_and_shown_by_the_command_line(web: Web, scans: Caller, ark: str) -> None:
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": scans.token}
    settings = web.context.settings

    listed = cli.run(settings, "objects", "--verdict", "found", **site)
    document = cli.run(settings, "objects", "--code", "x-fmt/111", "--json", **site)
    shown = cli.run(settings, "object", ark, "--no-verify", **site)

    assert (listed.code, document.code, shown.code) == (0, 0, 0), listed.err + document.err + shown.err
    assert f"{ark}" in listed.out
    assert "producer/b.txt of version 1: found by clamav (Eicar)" in listed.out
    assert [one["ark"] for one in document.json()["objects"]] == [ark]
    assert "clamav: overruled by Ann" in shown.out
    assert "clamav: b.txt: found (Eicar)" in shown.out
    assert "x-fmt/111" in shown.out
