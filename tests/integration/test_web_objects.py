"""Objects over the REST API: what a caller may see of a stored object, and proofs of its custody."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.objects.objects import known_object
from pipeline.attempt import UNATTENDED
from pipeline.principal import Role
from pipeline.records import Job
from pipeline.settings import Settings
from tasks.app import make_context
from tests.support import cli, planting
from tests.support.repository import Repository, empty_inventory
from tests.support.schemas import assert_valid
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


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
    stored = repository.job(int(job.jid[3:]), {"a.txt": "a", "b.txt": "b"}, batch_id=job.bid)
    yield repository.recorded(stored).ark
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

    read = cli.run(alone, "object", ark, "--premis", "object.xml", "--json", **site)
    recorded = cli.run(alone, "object", ark, "--all-versions", "--no-verify", "--json", **site)

    assert (read.code, recorded.code) == (0, 0), read.err + recorded.err
    custody = read.json()["custody"]
    assert (custody["read"], custody["agrees"], custody["complete"]) == (True, True, True)
    assert recorded.json()["custody"]["read"] is False
    assert b"premis" in (tmp_path / "away" / "object.xml").read_bytes()
    assert scans.get(f"/v1/objects/{ark}/custody?version=9").status_code == 422
    assert web.caller(Role.VIEWER, ["other"]).get(f"/v1/objects/{ark}/custody").status_code == 404
