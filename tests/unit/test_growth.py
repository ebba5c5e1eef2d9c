"""What is counted of a collection by day and by format, the figures of storage, and what a report reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text, update

from pipeline.inventory import fixity, growth
from pipeline.inventory.growth import KEPT_DAYS, SpaceDay, Stored
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import checks, formats, ingests
from pipeline.inventory.tables import growth as growth_table
from pipeline.records import now
from tests.support.checks import identified, scanned
from tests.support.recordings import FIRST_DAY, of_job, recording, stored_file

FIRST = FIRST_DAY.date()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/inventory.sqlite"


@pytest.fixture
def inventory(url: str) -> SqlInventory:
    return open_inventory(url)


PHOTOS = (stored_file("producer/a.jpg", 100), stored_file("producer/b.txt", 5), stored_file("system/x", 7))


def store_two_versions(inventory: SqlInventory) -> None:
    types = {"producer/a.jpg": "image/jpeg", "producer/b.txt": "text/plain"}
    inventory.record(recording(files=PHOTOS, mime_types=types))
    kept = stored_file("producer/a.jpg", 100, added=False)
    inventory.record(
        recording(
            number=2,
            jid="jid2",
            files=(kept, stored_file("producer/c.jpg", 1000)),
            mime_types={"producer/c.jpg": "image/jpeg"},
        )
    )


def test_a_version_is_counted_on_its_day_by_what_it_added(inventory: SqlInventory) -> None:
    store_two_versions(inventory)
    inventory.record(of_job("other", profile="maps"))

    assert inventory.days_of_collection("demo") == {
        FIRST: Stored(objects=1, versions=1, files=2, bytes=112),
        FIRST + timedelta(days=1): Stored(objects=0, versions=1, files=1, bytes=1000),
    }
    assert inventory.days_of_collection("maps") == {FIRST: Stored(1, 1, 2 - 1, 20)}
    assert inventory.bytes_by_day(FIRST) == {FIRST: 132, FIRST + timedelta(days=1): 1000}
    assert inventory.bytes_by_day(FIRST + timedelta(days=1)) == {FIRST + timedelta(days=1): 1000}
    assert inventory.first_day() == FIRST


def test_recording_again_counts_nothing_twice(inventory: SqlInventory) -> None:
    store_two_versions(inventory)
    before = inventory.days_of_collection("demo"), inventory.formats_of_collection("demo")
    store_two_versions(inventory)

    assert (inventory.days_of_collection("demo"), inventory.formats_of_collection("demo")) == before


def test_formats_are_media_types_until_a_check_identified_some(inventory: SqlInventory) -> None:
    store_two_versions(inventory)
    by_type = inventory.formats_of_collection("demo")
    assert (by_type.check, [(one.name, one.files) for one in by_type.formats]) == (
        "",
        [("image/jpeg", 2), ("text/plain", 1)],
    )

    inventory.add_checks(recording().version.ark, 1, [scanned("a.jpg"), identified({"a.jpg": "fmt/43"})])

    by_check = inventory.formats_of_collection("demo")
    assert (by_check.check, [(one.name, one.files) for one in by_check.formats]) == (
        "pronom",
        [("fmt/43", 1)],
    )


def test_a_later_run_of_a_check_replaces_what_the_earlier_one_identified(inventory: SqlInventory) -> None:
    inventory.record(recording(files=PHOTOS, checks=(identified({"a.jpg": "fmt/43", "b.txt": "x-fmt/111"}),)))
    later = identified({"a.jpg": "fmt/44", "b.txt": "x-fmt/111"}, "v120", at=FIRST_DAY + timedelta(days=9))
    late = identified({"a.jpg": "fmt/1"}, "v118", at=FIRST_DAY - timedelta(days=9))
    for _ in range(2):
        inventory.add_checks(recording().version.ark, 1, [later])
        inventory.add_checks(recording().version.ark, 1, [late])

    shown = inventory.formats_of_collection("demo")
    assert {one.name: one.files for one in shown.formats} == {"fmt/44": 1, "x-fmt/111": 1}


def test_scheduled_work_counts_what_a_release_without_counters_entered(inventory: SqlInventory) -> None:
    store_two_versions(inventory)
    inventory.add_checks(recording().version.ark, 1, [identified({"a.jpg": "fmt/43"})])
    expected = inventory.days_of_collection("demo"), inventory.formats_of_collection("demo")

    def forget(connection: Connection) -> None:
        for table in (ingests, checks):
            connection.execute(update(table).values(counted=None))
        for counters in (growth_table, formats):
            connection.execute(counters.delete())

    inventory.database.write(forget)
    assert not inventory.all_counted()
    assert inventory.days_of_collection("demo") == {}
    assert inventory.count_portion() == 3
    assert inventory.count_portion() == 0
    assert inventory.all_counted()
    assert (inventory.days_of_collection("demo"), inventory.formats_of_collection("demo")) == expected


def test_a_portion_ends_with_the_version_that_has_many_files(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        inventory.record(of_job(name))
    inventory.database.run(update(ingests).values(counted=None))
    monkeypatch.setattr(growth, "FILES_OF_PORTION", 3)  # each version has two

    assert [inventory.count_portion() for _ in range(3)] == [2, 1, 0]


def space(day: date, used: int) -> SpaceDay:
    return SpaceDay(day, 1000, used, None, None)


def test_the_first_figure_of_a_day_is_kept_and_a_day_without_one_stays_absent(
    inventory: SqlInventory,
) -> None:
    inventory.enter_space(space(FIRST, 1))
    inventory.enter_space(space(FIRST, 2))  # another beat, or a repeated run
    inventory.enter_space(space(FIRST + timedelta(days=2), 3))

    assert inventory.space_by_day(10) == (space(FIRST, 1), space(FIRST + timedelta(days=2), 3))
    assert inventory.space_by_day(1) == (space(FIRST + timedelta(days=2), 3),)


def test_old_figures_of_storage_go(inventory: SqlInventory) -> None:
    for days in (0, 1, KEPT_DAYS):
        inventory.enter_space(space(FIRST + timedelta(days=days), days))

    assert [one.working_used for one in inventory.space_by_day(10)] == [1, KEPT_DAYS]


def test_the_fixity_of_a_collection_has_what_is_due_and_what_is_damaged(inventory: SqlInventory) -> None:
    for name in "abc":
        inventory.record(of_job(name))
    inventory.record(of_job("other", profile="maps"))
    inventory.database.write(
        lambda connection: connection.execute(
            text("UPDATE inv_fixities SET damaged = 1, checked = since WHERE inv_object_id = 1")
        )
    )

    later = FIRST_DAY + timedelta(days=50)
    standing = fixity.of_collection(inventory, "demo", timedelta(days=90), 0.5, later)
    assert (standing.due, standing.overdue, standing.damaged) == (3, 0, 1)
    assert standing.damaged_objects == ("ark:/99999/fk4a",)
    assert standing.last_checked == standing.oldest == FIRST_DAY
    overdue = fixity.of_collection(inventory, "demo", timedelta(days=49), 0.5, later)
    assert (overdue.due, overdue.overdue) == (3, 3)
    assert fixity.of_collection(inventory, "demo", None, 0.5, later).due == 0
    assert fixity.of_collection(inventory, "nothing", None, 0.5, later).last_checked is None


@contextmanager
def statements(inventory: SqlInventory) -> Iterator[list[tuple[str, Any]]]:
    """The statements that the block has executed, with their values."""
    seen: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, values: Any, _x: Any, _many: Any) -> None:
        if statement.lstrip().startswith("SELECT"):
            seen.append((statement, values))

    engine = inventory.database.read(lambda connection: connection.engine)
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plans(inventory: SqlInventory, asked: Sequence[tuple[str, Any]]) -> list[str]:
    """How the database would execute the statements if tables were large."""

    def explain(connection: Connection) -> list[str]:
        sqlite = connection.dialect.name == "sqlite"
        if not sqlite:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        words = "EXPLAIN QUERY PLAN" if sqlite else "EXPLAIN"
        return [
            "\n".join(
                str(row[-1]) for row in connection.exec_driver_sql(f"{words} {statement}", values).fetchall()
            )
            for statement, values in asked
        ]

    return inventory.database.read(explain)


def test_no_question_about_a_collection_reads_a_whole_table(inventory: SqlInventory) -> None:
    store_two_versions(inventory)
    with statements(inventory) as asked:
        inventory.days_of_collection("demo")
        inventory.formats_of_collection("demo")
        inventory.all_counted()
        inventory.bytes_by_day(FIRST)
        inventory.first_day()
        inventory.space_by_day(30)
        fixity.of_collection(inventory, "demo", timedelta(days=90), 0.5, now())
        inventory.count_portion()

    assert len(asked) == 16
    for (statement, _), plan in zip(asked, plans(inventory, asked), strict=True):
        assert "Seq Scan" not in plan, f"{statement}\n{plan}"
        scans = [line for line in plan.splitlines() if line.startswith("SCAN")]
        assert all("INDEX" in line or "(subquery" in line or "anon" in line for line in scans), (
            f"{statement}\n{plan}"
        )
        if "inv_fixities" in statement:
            index = "damage" if "damaged" in statement else "profile_"
            assert f"ix_inv_fixities_{index}" in plan, f"{statement}\n{plan}"
        for name in ("ingests", "checks"):
            if f"inv_{name}.counted IS NULL" in statement:
                assert f"ix_inv_{name}_uncounted" in plan, f"{statement}\n{plan}"
