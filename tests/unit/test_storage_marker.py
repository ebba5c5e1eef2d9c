"""The deployment id of a storage root, and the listing of everything in it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import attempt
from pipeline.deployment import Deployment
from pipeline.outcome import Service, ServiceDown
from pipeline.storage.ocfl.storage import OcflStorage
from tests.support.ocfl_fixture import ARK, OcflFixture, assert_valid

OTHER = "ark:/99999/fk4other"


@pytest.fixture
def depot(tmp_path: Path) -> OcflFixture:
    return OcflFixture(tmp_path)


def expecting(depot: OcflFixture, deployment: str) -> OcflStorage:
    return OcflStorage(depot.folder, lock_wait=0.2, expected=lambda: deployment)


def uses(storage: OcflStorage) -> list[Callable[[], object]]:
    return [
        lambda: storage.version_of(ARK, "jid1"),
        lambda: storage.has_object(ARK),
        lambda: storage.read(ARK, "producer/a.txt"),
        lambda: list(storage.versions()),
    ]


def test_a_root_with_a_deployment_id_is_valid_ocfl(depot: OcflFixture) -> None:
    depot.storage.store(depot.request("jid1", {"a.txt": "a"}), lambda: None)
    deployment = Deployment(mark=7)

    depot.storage.write_deployment(deployment)

    assert depot.storage.read_deployment() == deployment.model_copy(update={"mark": 0})
    assert_valid(depot)


def test_a_root_without_its_marker_is_neither_used_nor_created(depot: OcflFixture) -> None:
    storage = expecting(depot, "a" * 32)

    def store() -> object:
        return storage.store(depot.request("jid1", {"a.txt": "a"}), lambda: None)

    for use in (*uses(storage), store):
        with pytest.raises(ServiceDown, match="mount its disk") as down:
            use()
        assert down.value.service is Service.STORAGE
    assert not depot.folder.exists()


def test_a_root_of_another_deployment_is_not_used(depot: OcflFixture) -> None:
    depot.storage.write_deployment(Deployment(id="b" * 32))
    storage = expecting(depot, "a" * 32)

    for use in uses(storage):
        with pytest.raises(ServiceDown, match="belongs to deployment bbbb"):
            use()


def test_a_root_that_disappears_while_a_version_is_staged_gets_no_version(
    depot: OcflFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "CHECK_INTERVAL", 0.0)  # the fence is asked while the version is staged
    depot.storage.write_deployment(Deployment(id="a" * 32))
    storage = expecting(depot, "a" * 32)
    away = depot.folder.with_name("away")
    fenced = 0

    def fence() -> None:
        nonlocal fenced
        fenced += 1
        if fenced == 1:
            (depot.folder / "extensions" / "arkline" / "deployment.json").rename(away)

    with pytest.raises(ServiceDown):
        storage.store(depot.request("jid1", {"a.txt": "a"}), fence)
    assert depot.head() is None


def test_every_version_is_listed_with_its_job_and_key(depot: OcflFixture) -> None:
    for jid, key, ark in (("jid1", "1" * 32, ARK), ("jid2", "", ARK), ("jid3", "3" * 32, OTHER)):
        request = replace(depot.request(jid, {"a.txt": jid}, ark=ark), key=key)
        depot.storage.store(request, lambda: None)
    damaged = depot.object("ark:/99999/fk4damaged")
    damaged.mkdir(parents=True)

    entries = list(depot.storage.versions())

    assert sorted((e.ark, e.number, e.jid, e.key) for e in entries if not e.problem) == [
        (ARK, 1, "jid1", "1" * 32),
        (ARK, 2, "jid2", ""),
        (OTHER, 1, "jid3", "3" * 32),
    ]
    assert [e.ark for e in entries if e.problem] == [str(damaged)]
