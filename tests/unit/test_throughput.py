"""What was stored in each hour, read from the inventory, and the time left of a batch."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from entrypoints.web.pages import drawings
from operations.board.throughput import ENOUGH, HOUR, QUIET, SHORTEST, Throughput, seconds_left
from operations.board.values import BoardBatch, Hour, in_all
from pipeline.inventory.growth import StoredOfBatch, StoredVersions
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.states import BatchState, JobState
from tests.support.recordings import of_job, recording, stored_file

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EARLIER_FILE = stored_file("producer/kept.jpg", size=1000, added=False)


def store(inventory: SqlInventory, name: str, at: datetime, **other: object) -> None:
    """Enter a version that was stored at this time: 7 new bytes beside a file of an earlier version."""
    entered = of_job(name, **other)
    files = (stored_file("producer/a.jpg", size=7), EARLIER_FILE)
    inventory.record(replace(entered, version=replace(entered.version, created=at, files=files)))


def test_an_hour_has_the_versions_stored_in_it_with_their_new_bytes(inventory: SqlInventory) -> None:
    store(inventory, "1", NOON - timedelta(seconds=1))
    store(inventory, "2", NOON, depositor="token:anna")
    store(inventory, "3", NOON + timedelta(minutes=59), depositor="token:anna")
    store(inventory, "4", NOON + timedelta(minutes=30), profile="maps")
    store(inventory, "5", NOON + HOUR)

    assert sorted(inventory.stored_between(NOON, NOON + HOUR), key=lambda one: one.collection) == [
        StoredVersions("demo", "token:anna", 2, 14),
        StoredVersions("maps", "", 1, 7),
    ]


def test_what_is_entered_late_counts_in_the_hour_in_which_it_was_stored(inventory: SqlInventory) -> None:
    inventory.record(recording())

    assert inventory.stored_between(NOON, datetime.now(UTC) + HOUR) == ()


def test_the_versions_of_batches_are_counted_with_the_last_of_each(inventory: SqlInventory) -> None:
    store(inventory, "1", NOON - HOUR, bid="bid0000000001")
    store(inventory, "2", NOON, bid="bid0000000001")
    store(inventory, "3", NOON + HOUR, bid="bid0000000001")
    store(inventory, "4", NOON, bid="bid0000000002")

    assert inventory.stored_of_batches(NOON) == {
        "bid0000000001": StoredOfBatch(2, NOON + HOUR),
        "bid0000000002": StoredOfBatch(1, NOON),
    }


def test_an_hour_is_found_by_an_index(tmp_path: object) -> None:
    inventory = open_inventory(f"sqlite:///{tmp_path}/inventory.sqlite")
    question = "SELECT id FROM inv_versions WHERE created >= '2026' AND created < '2027'"

    plan = inventory.database.read(
        lambda connection: connection.execute(text(f"EXPLAIN QUERY PLAN {question}")).all()
    )

    assert "ix_inv_versions_created" in str(plan)


BATCH = BoardBatch(
    bid="bid0000000001",
    collection="demo",
    owner="token:anna",
    name="letters",
    status=BatchState.PROCESSING,
    since=NOON - timedelta(minutes=10),
    submitted_at=NOON - timedelta(minutes=11),
    total=100,
    jobs={JobState.COMPLETED: 20, JobState.PENDING: 80},
)


def pace(number: int = 20, last: datetime = NOON) -> Throughput:
    return Throughput(NOON, NOON - 99 * HOUR, {}, {BATCH.bid: StoredOfBatch(number, last)})


def left(at: Throughput | None = None, **changes: object) -> float | None:
    return seconds_left(at or pace(), BATCH.model_copy(update=changes), ())


def test_the_time_left_is_that_of_the_rest_at_the_rate_since_the_batch_began() -> None:
    assert left() == 80 / (20 / 600)


def test_of_a_long_batch_the_rate_of_the_last_hour_counts() -> None:
    assert left(since=NOON - 50 * HOUR) == 80 / (20 / 3600)


def test_as_many_of_the_rest_are_expected_to_fail_as_until_now() -> None:
    jobs = {JobState.COMPLETED: 20, JobState.FAILED: 20, JobState.PENDING: 60}

    assert left(jobs=jobs) == 60 / (40 / 600)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": BatchState.HELD},
        {"status": BatchState.REPORTING},
        {"total": None},
        {"since": NOON - timedelta(seconds=SHORTEST - 1)},
        {"jobs": {JobState.COMPLETED: 20, JobState.HELD: 80}},
        {"jobs": {JobState.COMPLETED: 20, JobState.REVIEW: 1, JobState.PENDING: 79}},
        {"jobs": {JobState.COMPLETED: 90, JobState.FAILED: 10}},
        {"bid": "bid0000000002"},
    ],
    ids=str,
)
def test_the_time_left_is_absent_while_the_batch_waits_or_too_little_is_known(
    changes: dict[str, object],
) -> None:
    assert left(None, **changes) is None


def test_the_time_left_is_absent_without_enough_objects_of_late() -> None:
    assert left(at=pace(number=ENOUGH)) is not None
    assert left(at=pace(number=ENOUGH - 1)) is None
    assert left(at=pace(last=NOON - timedelta(seconds=QUIET))) is not None
    assert left(at=pace(last=NOON - timedelta(seconds=QUIET + 1))) is None


def test_the_time_left_is_absent_while_the_collection_is_on_hold() -> None:
    assert seconds_left(pace(), BATCH, {"maps"}) is not None
    assert seconds_left(pace(), BATCH, {"demo"}) is None


def test_a_sum_is_known_if_each_hour_is() -> None:
    hours = [Hour(begins=NOON, stored=1, failed=2), Hour(begins=NOON + HOUR, stored=3)]

    assert in_all(hours, "stored") == 4
    assert in_all(hours, "failed") is None
    assert in_all([], "stored") is None


def test_of_what_is_not_known_nothing_is_drawn_and_zero_is_a_line() -> None:
    hours = [
        Hour(begins=NOON, stored=3, failed=1, bytes=8),
        Hour(begins=NOON + HOUR, stored=0, failed=0, bytes=0),
        Hour(begins=NOON + 2 * HOUR, failed=4),
    ]

    (_, objects), (_, sizes) = drawings.of_hours(hours)

    assert [(box.kind, box.height, box.label) for box in objects] == [
        ("completed", 43.5, "2026-11-20 12:00 UTC: 3 stored"),
        ("failed", 14.5, "2026-11-20 12:00 UTC: 1 failed"),
        ("completed", 1.0, "2026-11-20 13:00 UTC: 0 stored"),
        ("failed", 0.0, "2026-11-20 13:00 UTC: 0 failed"),
        ("failed", 58.0, "2026-11-20 14:00 UTC: 4 failed"),
    ]
    assert [(box.x, box.height) for box in sizes] == [(879.0, 58.0), (920.7, 1.0)]
    assert all(box.y >= 0 and box.y + box.height <= drawings.HIGHEST for box in objects)
