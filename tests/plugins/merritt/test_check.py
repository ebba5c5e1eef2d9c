"""`arkline check` with Merritt's services, which cannot list what they have: what it finds and says."""

import dataclasses
from collections.abc import Iterator

import pytest

from operations.checks.deployment import initialize
from operations.site import Site
from pipeline.records import Identifiers
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps import process, record
from tests.plugins.merritt.repository import ARK, MerrittRepository
from tests.servers.merritt_inventory import InventoryService, inventory_service
from tests.support import cli, planting
from tests.support.fleet import set_variables
from tests.support.stores import with_record
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import jobs


@pytest.fixture
def repository(
    kept: MerrittRepository, session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> MerrittRepository:
    """A repository in Merritt's storage service, with a record."""
    set_variables(monkeypatch, kept.own)
    with_record(kept, session, settings)
    kept.keep(kept.service)
    return kept


@pytest.fixture
def service(repository: MerrittRepository, monkeypatch: pytest.MonkeyPatch) -> Iterator[InventoryService]:
    with inventory_service() as running:
        repository.keep(repository.service, inventory_service_url=running.url)
        set_variables(monkeypatch, repository.own)
        yield running


def completed(session: Session, repository: MerrittRepository) -> str:
    """The JID of a completed job whose version is in the storage service and in both inventories."""
    job = planting.job_in(session, JobState.COMPLETED)
    number = int(job.jid.removeprefix("jid"))
    made = repository.job(number, {"a.txt": "alpha"}, key=job.configuration.key, primary_id=ARK)
    asked = repository.own.inventory_service_url
    entered = repository.inventory_with_service() if asked else repository.inventory
    context = dataclasses.replace(repository.services(), storage=repository.kept, inventory=entered)
    process.work(made, context)
    record.work(made.model_copy(update={"identifiers": repository.identifiers(made)}), context)
    session.zk.set(paths.identifiers(job.jid), Identifiers(primary_id=ARK).model_dump_json().encode())
    assert jobs.load(session, job.jid).status.status is JobState.COMPLETED
    return job.jid


def test_what_was_compared_and_what_was_not_is_said(
    session: Session, repository: MerrittRepository, service: InventoryService
) -> None:
    completed(session, repository)

    shown = cli.run(repository.settings, "check")
    facts = cli.run(repository.settings, "check", "--json").json()

    assert shown.code == 0, shown
    assert "agree as far as they were compared" in shown.out
    assert "Not compared: versions that neither the inventory nor a job knows" in shown.err
    assert "Not compared: the inventory service" in shown.err
    assert facts["not_compared"] == ["unknown-versions", "inventory-service"]
    assert facts["compared"] > 0
    assert service.versions == {ARK: 1}


def test_a_lost_inventory_gets_the_versions_of_the_record_back_from_the_services(
    session: Session, repository: MerrittRepository, service: InventoryService
) -> None:
    jid = completed(session, repository)
    repository.close()
    (repository.settings.home / "inventory.sqlite").unlink()
    service.versions.clear()
    initialize(Site(repository.settings, session), missing=True)

    dry = cli.run(repository.settings, "check")
    repaired = cli.run(repository.settings, "check", "--repair", "--json")
    again = cli.run(repository.settings, "check")

    assert dry.code == 1, dry
    assert jid in dry.out
    assert repaired.code == 0, repaired
    assert repaired.json()["repaired"]["not-entered"] == 1
    assert again.code == 0, again
    assert repository.described(ARK).versions[0].jid == jid
    assert service.versions == {ARK: 1}


def test_a_stored_version_of_a_failed_job_is_named_and_entered_although_its_profile_has_another_node_now(
    session: Session, repository: MerrittRepository
) -> None:
    job = planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)
    number = int(job.jid.removeprefix("jid"))
    made = repository.job(number, key=job.configuration.key, primary_id=ARK)
    repository.process(made)
    session.zk.set(paths.identifiers(job.jid), repository.identifiers(made).model_dump_json().encode())
    with (repository.settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("storage_node: 42\n")

    shown = cli.run(repository.settings, "check")
    audited = cli.run(repository.settings, "check", "--jobs", "--json")
    repaired = cli.run(repository.settings, "check", "--repair", "--json")

    assert shown.code == 1, shown
    assert job.jid in audited.out, audited
    assert f"the job failed; `arkline resume {job.jid}` completes it" in shown.out
    assert repaired.json()["repaired"]["not-entered"] == 1
    assert repository.described(ARK).versions[0].jid == job.jid


def test_a_version_that_the_storage_service_lacks_is_broken_custody(
    session: Session, repository: MerrittRepository
) -> None:
    completed(session, repository)
    repository.service.objects.clear()

    done = cli.run(repository.settings, "check", "--json")

    assert done.code == 4, done
    assert done.json()["counts"] == {"not-stored": 1}
    assert done.json()["not_compared"] == ["unknown-versions"]


def test_a_storage_service_that_does_not_answer_is_no_lost_object(
    session: Session, repository: MerrittRepository
) -> None:
    completed(session, repository)

    done = cli.run(repository.settings, "check", ARKLINE_STORAGE_SERVICE_URL="http://127.0.0.1:1/store")

    assert done.code == 3, done
    assert "agree" not in done.out
