"""Every object is in the fixity schedule from its recording on; before schema 0019, a run entered it."""

from sqlalchemy import func, select, text

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import fixities
from tests.support.recordings import of_job


def scheduled(inventory: SqlInventory) -> int:
    query = select(func.count()).select_from(fixities)
    return inventory.database.read(lambda connection: connection.scalar(query)) or 0


def record_as_an_earlier_release(inventory: SqlInventory, *names: str) -> None:
    for name in names:
        inventory.record(of_job(name))
    inventory.database.run(fixities.delete())


def test_an_object_is_scheduled_with_its_recording(inventory: SqlInventory) -> None:
    inventory.record(of_job("0000000001"))

    fixity = inventory.describe_object("ark:/99999/fk40000000001")
    assert fixity is not None
    assert fixity.fixity is not None
    assert (fixity.fixity.since, fixity.fixity.checked) == (fixity.created, None)


def test_an_upgrade_schedules_all_objects_of_an_earlier_release(inventory: SqlInventory) -> None:
    record_as_an_earlier_release(inventory, "0000000001", "0000000002")
    inventory.database.run(text("UPDATE inv_schema SET number = '0018'"))
    inventory.database.close()

    assert scheduled(inventory) == 2


def test_an_object_of_a_worker_of_an_earlier_release_is_scheduled_by_the_next_run(
    inventory: SqlInventory,
) -> None:
    record_as_an_earlier_release(inventory, "0000000001", "0000000002", "0000000003")

    inventory.schedule_newest(2)

    assert scheduled(inventory) == 2


def test_the_last_job_is_the_one_with_the_highest_number_beyond_ten_digits_too(
    inventory: SqlInventory,
) -> None:
    for name in ("9999999999", "10000000007", "0000000001"):
        inventory.record(of_job(name))

    assert inventory.last_job() == 10_000_000_007


def test_an_object_is_found_by_the_local_id_of_each_owner(inventory: SqlInventory) -> None:
    inventory.reserve_local_ids("ark:/99999/j1", "ark:/99999/fk4a", ["box-1", "box-2"])
    inventory.reserve_local_ids("ark:/99999/j2", "ark:/99999/fk4b", ["box-1"])

    assert inventory.objects_named("box-1") == ("ark:/99999/fk4a", "ark:/99999/fk4b")
    assert inventory.objects_named("box-3") == ()
