"""Objects over the REST API: what a caller may see of a stored object, and proofs of its custody."""

from collections.abc import Iterator

import pytest

from operations.objects import known_object
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import planting
from tests.support.repository import Repository, empty_inventory
from tests.support.web import Caller, Web, serving
from zkstate.session import Session, connect


@pytest.fixture(scope="module")
def record(module_settings: Settings) -> Iterator[Session]:
    with connect(module_settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def ark(
    module_settings: Settings, record: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An object of the depositor `scans`."""
    repository = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    batch = planting.acquired_batch(record, owner="token:scans")
    job = repository.job(1, bid=batch.bid)
    yield repository.recorded(job).ark
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

    web.context.custody_proofs.wait_ended(answer.json()["id"], known_object(web.context.inventory(), ark), 20)

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
