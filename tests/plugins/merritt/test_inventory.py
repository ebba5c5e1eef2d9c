"""Recording and local ids with Merritt's inventory service beside our inventory."""

import dataclasses
from collections.abc import Iterator

import pytest

from pipeline import plugins
from pipeline.errors import UsageRefused
from pipeline.inventory.service import InventoryWithService
from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.records import Job, SubmissionMode
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.steps import process, record
from pipeline.steps.context import StepContext, open_clients
from plugins.merritt.settings import MerrittSettings
from plugins.merritt.storage import MerrittStorage
from tests.plugins.merritt.repository import ARK, MerrittRepository
from tests.servers.merritt_inventory import InventoryService, inventory_service
from tests.support.fleet import set_variables
from tests.support.repository import OWNER

OTHER = "ark:/99999/other"


@pytest.fixture
def service() -> Iterator[InventoryService]:
    with inventory_service() as running:
        yield running


@pytest.fixture
def inventory(kept: MerrittRepository, service: InventoryService) -> Iterator[InventoryWithService]:
    kept.keep(kept.service, inventory_service_url=service.url)
    made = kept.inventory_with_service()
    yield made
    made.database.close()


def steps(kept: MerrittRepository, inventory: InventoryWithService) -> StepContext:
    return dataclasses.replace(kept.services(), storage=kept.kept, inventory=inventory)


def recorded(kept: MerrittRepository, inventory: InventoryWithService, job: Job) -> None:
    context = steps(kept, inventory)
    process.work(job, context)
    record.work(job.model_copy(update={"identifiers": kept.identifiers(job)}), context)


def test_a_version_is_entered_in_the_service_and_in_our_inventory(
    kept: MerrittRepository, inventory: InventoryWithService, service: InventoryService
) -> None:
    recorded(kept, inventory, kept.submitted(1, SubmissionMode.ADD, {"a.txt": "a"}))
    recorded(kept, inventory, kept.submitted(2, SubmissionMode.UPDATE, {"b.txt": "b"}))

    assert service.versions == {ARK: 2}
    assert [version.number for version in kept.described(ARK).versions] == [1, 2]


def test_recording_twice_is_recording_once_after_a_crash_between_the_two(
    kept: MerrittRepository, inventory: InventoryWithService, service: InventoryService
) -> None:
    job = kept.submitted(1, SubmissionMode.ADD, {"a.txt": "a"})
    context = steps(kept, inventory)
    process.work(job, context)
    identified = job.model_copy(update={"identifiers": kept.identifiers(job)})
    service.versions[ARK] = 1
    record.work(identified, context)
    record.work(identified, context)

    assert service.versions == {ARK: 1}
    assert len(kept.described(ARK).versions) == 1


def test_a_service_that_entered_nothing_fails_the_recording(
    kept: MerrittRepository, inventory: InventoryWithService, service: InventoryService
) -> None:
    service.forgets = True

    with pytest.raises(StepFailed, match="its current version is 0") as failed:
        recorded(kept, inventory, kept.submitted(1, SubmissionMode.ADD, {"a.txt": "a"}))

    assert failed.value.kind is FailureKind.SYSTEM
    assert inventory.describe_object(ARK) is None


def test_local_ids_are_reserved_in_the_service_and_name_the_object(
    inventory: InventoryWithService, service: InventoryService
) -> None:
    inventory.reserve_local_ids(OWNER, ARK, ("loc-1", "a/b ü"))
    inventory.reserve_local_ids(OWNER, ARK, ("loc-1", "loc-2"))

    assert service.local_ids == {(OWNER, name): ARK for name in ("loc-1", "a/b ü", "loc-2")}
    assert inventory.arks_of(OWNER, ("loc-1", "loc-9")) == {"loc-1": ARK}
    assert set(inventory.local_ids_of(ARK)) == {"loc-1", "a/b ü", "loc-2"}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_local_ids_of_an_object_are_read_in_each_shape_of_the_answer(
    inventory: InventoryWithService, service: InventoryService, count: int
) -> None:
    service.local_ids = {(OWNER, f"loc-{number}"): ARK for number in range(count)}

    assert inventory.local_ids_of(ARK) == tuple(f"loc-{number}" for number in range(count))


def test_a_local_id_that_the_service_has_for_another_object_is_refused_and_none_is_reserved(
    inventory: InventoryWithService, service: InventoryService
) -> None:
    service.local_ids[OWNER, "taken"] = OTHER

    with pytest.raises(StepFailed, match=f"'taken' of owner {OWNER} belongs to {OTHER}") as failed:
        inventory.reserve_local_ids(OWNER, ARK, ("free", "taken"))

    assert failed.value.kind is FailureKind.CONTENT
    assert service.local_ids == {(OWNER, "taken"): OTHER}


def test_an_id_that_the_protocol_cannot_carry_is_refused(inventory: InventoryWithService) -> None:
    with pytest.raises(StepFailed, match="has a semicolon") as failed:
        inventory.reserve_local_ids(OWNER, ARK, ("a;b",))

    assert failed.value.kind is FailureKind.CONTENT


def test_a_fault_that_passes_is_asked_again_and_a_lasting_one_is_the_service_of_the_inventory(
    inventory: InventoryWithService, service: InventoryService
) -> None:
    service.faults = [503, 500]
    assert inventory.arks_of(OWNER, ("loc-1",)) == {}

    service.faults = [500] * 10
    with pytest.raises(ServiceDown, match="the inventory service") as failed:
        inventory.arks_of(OWNER, ("loc-1",))

    assert (failed.value.kind, failed.value.service) == (FailureKind.TRANSIENT, Service.INVENTORY)


def test_a_wrong_address_is_a_system_failure_that_names_the_setting(
    inventory: InventoryWithService, service: InventoryService
) -> None:
    service.faults = [404]

    with pytest.raises(StepFailed, match="ARKLINE_INVENTORY_SERVICE_URL") as failed:
        inventory.arks_of(OWNER, ("loc-1",))

    assert failed.value.kind is FailureKind.SYSTEM


def test_the_settings_choose_the_services(
    kept: MerrittRepository,
    inventory: InventoryWithService,
    service: InventoryService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del inventory  # names its service in the settings
    set_variables(monkeypatch, kept.own)
    clients = open_clients(kept.settings)

    assert isinstance(clients.inventory, InventoryWithService)
    assert isinstance(clients.storage, MerrittStorage)
    service.local_ids[OWNER, "loc-1"] = OTHER
    assert clients.inventory.arks_of(OWNER, ("loc-1",)) == {"loc-1": OTHER}

    monkeypatch.setenv("ARKLINE_INVENTORY_SERVICE_URL", "")
    clients = open_clients(kept.settings)
    assert not isinstance(clients.inventory, InventoryWithService)
    assert isinstance(clients.storage, MerrittStorage)


def test_the_service_needs_the_storage_service_because_it_reads_versions_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARKLINE_INVENTORY_SERVICE_URL", "http://inventory.example/mrtinv")

    for opener, given in ((plugins.STORAGE, (Settings(), None)), (plugins.INVENTORY, (Settings(),))):
        with pytest.raises(UsageRefused, match="needs ARKLINE_STORAGE_SERVICE_URL"):
            plugins.chosen(opener)(*given)


def test_a_setting_is_read_under_its_earlier_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_STORAGE_SERVICE_LOOK_AGAIN", "7")
    assert MerrittSettings().storage_service_recheck_after == 7

    monkeypatch.setenv("ARKLINE_STORAGE_SERVICE_RECHECK_AFTER", "8")
    assert MerrittSettings().storage_service_recheck_after == 8
