"""What checks found, in the inventory."""

import time
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from pipeline.checks import SHOWN_FINDINGS, CheckFinding, CheckRun, CheckVerdict, Obstacle, Overrule, Stage
from pipeline.inventory.base import InventoryObject, InventoryVersion, Provenance
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.outcome import StepFailed
from pipeline.states import FailureKind
from tests.support.checks import found_in, identified, scanned
from tests.support.recordings import ARK, FIRST_DAY, recording, stored_file
from tests.unit.test_inventory import RELEASES, count, made_by

A, B, C = (stored_file(f"producer/{name}") for name in ("a.jpg", "b.txt", "c.zip"))
OURS = stored_file("system/mrt-erc.txt")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/inventory.sqlite"


@pytest.fixture
def inventory(url: str) -> SqlInventory:
    return open_inventory(url)


def described(inventory: SqlInventory, ark: str = ARK) -> InventoryObject:
    known = inventory.describe_object(ark)
    assert known is not None
    return known


def told(version: InventoryVersion) -> dict[str, list[tuple[str, str, str]]]:
    """Path -> (check, verdict, code) of each finding."""
    return {
        file.path: [(each.check, each.verdict.value, each.code) for each in file.findings]
        for file in version.files
    }


def test_what_checks_found_is_entered_with_the_version(inventory: SqlInventory) -> None:
    overrule = Overrule(by="Ann", at=FIRST_DAY, reason="a test file")
    virus = scanned(found_in("c.zip", "Eicar"), "a.jpg", "b.txt").model_copy(update={"overruled": overrule})
    formats = identified({"a.jpg": "fmt/44", "b.txt": "x-fmt/111", "c.zip": "x-fmt/263"})

    inventory.record(recording(files=(A, B, C, OURS), checks=(virus, formats)))

    (version,) = described(inventory).versions
    assert told(version) == {
        "producer/a.jpg": [("clamav", "fine", ""), ("pronom", "fine", "fmt/44")],
        "producer/b.txt": [("clamav", "fine", ""), ("pronom", "fine", "x-fmt/111")],
        "producer/c.zip": [("clamav", "found", "Eicar"), ("pronom", "fine", "x-fmt/263")],
        "system/mrt-erc.txt": [],
    }
    scan, identification = version.checks
    assert (scan.check, scan.version, scan.event, scan.stage, scan.at) == (
        "clamav",
        "1.4.1/27500",
        "virus check",
        Stage.DOWNLOADED,
        virus.at,
    )
    assert (scan.fine, scan.found, scan.unchecked, scan.worst) == (2, 1, 0, CheckVerdict.FOUND)
    assert scan.findings == (found_in("c.zip", "Eicar"),)
    assert scan.overruled == overrule
    assert (identification.fine, identification.worst, identification.overruled) == (
        3,
        CheckVerdict.FINE,
        None,
    )


def test_a_file_of_which_a_run_says_nothing_is_not_checked(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A, B, OURS), checks=(scanned("a.jpg"),)))

    (version,) = described(inventory).versions
    assert told(version)["producer/b.txt"] == []
    assert [(run.fine, run.unchecked, run.worst) for run in version.checks] == [
        (1, 1, CheckVerdict.UNCHECKED)
    ]


def test_a_file_that_came_from_an_earlier_version_keeps_what_was_found_then(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A, B), checks=(scanned("a.jpg", "b.txt"),)))
    kept = replace(A, added=False)
    update = recording(
        number=2,
        jid="jid0000000002",
        files=(kept, C),
        provenance={"producer/c.zip": Provenance(C.sha512)},
        downloaded=FIRST_DAY,
        checks=(scanned(found_in("c.zip", "Eicar"), version="1.4.2/27600"),),
    )
    inventory.record(update)

    _, second = described(inventory).versions
    assert told(second) == {
        "producer/a.jpg": [("clamav", "fine", "")],
        "producer/c.zip": [("clamav", "found", "Eicar")],
    }
    assert [(run.fine, run.found, run.unchecked) for run in second.checks] == [(0, 1, 0)]


def test_other_bytes_under_the_same_name_are_not_checked_by_an_earlier_run(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A,), checks=(scanned("a.jpg"),)))
    inventory.record(recording(number=2, jid="jid0000000002", files=(replace(A, sha512="00" * 64),)))

    _, second = described(inventory).versions
    assert told(second) == {"producer/a.jpg": []}


def test_recording_again_enters_no_run_twice_and_adds_what_is_missing(inventory: SqlInventory) -> None:
    virus, formats = scanned("a.jpg"), identified({"a.jpg": "fmt/44"})
    inventory.record(recording(files=(A,), checks=(virus,)))
    inventory.record(recording(files=(A,), checks=(virus, formats)))
    inventory.record(recording(files=(A,), checks=(virus, formats)))

    (version,) = described(inventory).versions
    assert [run.check for run in version.checks] == ["clamav", "pronom"]
    assert count(inventory, "inv_findings") == 2


def test_the_first_runs_of_a_version_are_entered_in_at_most_four_statements(inventory: SqlInventory) -> None:
    """The files of the version, the two runs (one statement in PostgreSQL), all findings; formats are counted
    with the files."""
    inventory.record(recording(files=(A,)))
    runs = (scanned("a.jpg"), identified({"a.jpg": "fmt/44"}))
    sent: list[str] = []

    @event.listens_for(Engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    try:
        inventory.record(recording(ark="ark:/99999/fk4b", jid="jid0000000002", files=(A,)))
        plain = len(sent)
        inventory.record(recording(ark="ark:/99999/fk4c", jid="jid0000000003", files=(A,), checks=runs))
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert len(sent) - 2 * plain <= 4


def test_a_later_run_of_a_check_counts_and_the_earlier_one_is_kept(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A, B), checks=(identified({"a.jpg": "fmt/43", "b.txt": "x-fmt/111"}),)))
    later = identified({"a.jpg": "fmt/44"}, version="v120", at=FIRST_DAY + timedelta(days=90))

    for _ in range(2):
        inventory.add_checks(ARK, 1, (later,))

    (version,) = described(inventory).versions
    assert [(run.version, run.fine, run.unchecked) for run in version.checks] == [
        ("v119", 2, 0),
        ("v120", 1, 1),
    ]
    assert told(version) == {"producer/a.jpg": [("pronom", "fine", "fmt/44")], "producer/b.txt": []}


def test_an_earlier_run_that_is_entered_later_does_not_count(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A,), checks=(identified({"a.jpg": "fmt/44"}, version="v120"),)))
    earlier = identified({"a.jpg": "fmt/43"}, at=FIRST_DAY - timedelta(days=1))

    inventory.add_checks(ARK, 1, (earlier,))

    (version,) = described(inventory).versions
    assert told(version) == {"producer/a.jpg": [("pronom", "fine", "fmt/44")]}


def test_a_run_of_a_version_that_is_not_recorded_is_refused(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A,)))

    with pytest.raises(StepFailed, match=f"no version 2 of {ARK}, which was checked") as refusal:
        inventory.add_checks(ARK, 2, (scanned("a.jpg"),))

    assert refusal.value.kind is FailureKind.SYSTEM


def test_a_file_of_the_deposit_that_was_not_stored_is_named_by_its_path(inventory: SqlInventory) -> None:
    deleted = found_in("mrt-delete.txt", "Odd\x00")
    inventory.record(recording(files=(A,), checks=(scanned("a.jpg", deleted),)))

    (run,) = described(inventory).versions[0].checks
    assert [(each.path, each.code) for each in run.findings] == [("mrt-delete.txt", "Odd\ufffd")]
    assert (run.fine, run.found) == (1, 1)


def test_the_files_of_a_job_have_what_was_found_in_them(inventory: SqlInventory) -> None:
    inventory.record(recording(files=(A, B, C), checks=(scanned("a.jpg", "b.txt", found_in("c.zip", "X")),)))

    first = inventory.files_of_job("jid0000000001", 2)
    assert first is not None
    assert first.last is not None
    rest = inventory.files_of_job("jid0000000001", 2, first.last)
    assert rest is not None
    shown = [[(each.verdict, each.code) for each in file.findings] for file in (*first.files, *rest.files)]
    assert shown == [[("fine", "")], [("fine", "")], [("found", "X")]]


def test_of_many_findings_the_first_are_described_and_all_are_kept(inventory: SqlInventory) -> None:
    many = SHOWN_FINDINGS + 50
    files = tuple(stored_file(f"producer/{number}") for number in range(many))
    large = [
        CheckFinding(path=str(number), verdict=CheckVerdict.UNCHECKED, code=Obstacle.TOO_LARGE)
        for number in range(many)
    ]
    inventory.record(recording(files=files, checks=(scanned(*large),)))

    (run,) = described(inventory).versions[0].checks
    assert run.unchecked == many
    assert len(run.findings) == SHOWN_FINDINGS
    assert count(inventory, "inv_findings") == many


@pytest.mark.parametrize("release", RELEASES)
def test_an_object_of_an_earlier_release_can_be_checked(url: str, release: str) -> None:
    made_by(release, url)
    inventory = open_inventory(url)
    before = described(inventory, "ark:/99999/fk4old").versions[0]
    assert (before.checks, told(before)) == ((), {"producer/old.txt": []})

    inventory.add_checks("ark:/99999/fk4old", 1, (scanned("old.txt", stage=Stage.RECORDED),))

    after = described(inventory, "ark:/99999/fk4old").versions[0]
    assert told(after) == {"producer/old.txt": [("clamav", "fine", "")]}
    inventory.database.close()


MANY = 20_000


@pytest.fixture
def many() -> tuple[list[str], tuple[CheckRun, ...]]:
    names = [f"folder/{number:06}.jpg" for number in range(MANY)]
    runs = (scanned(*names), identified(dict.fromkeys(names, "fmt/44")))
    return names, runs


def test_many_files_with_two_checks_take_a_small_multiple_of_the_time_without(
    inventory: SqlInventory,
    many: tuple[list[str], tuple[CheckRun, ...]],
) -> None:
    names, runs = many
    files = tuple(stored_file(f"producer/{name}") for name in names)

    def seconds(ark: str, jid: str, checks: tuple[CheckRun, ...]) -> float:
        own = recording(ark, jid=jid, files=files, checks=checks)
        began = time.process_time()
        inventory.record(own)
        return time.process_time() - began

    seconds("ark:/99999/fk4warm", "jid0000000001", ())
    without = min(seconds(f"ark:/99999/fk4w{n}", f"jid000000001{n}", ()) for n in range(2))
    having = min(seconds(f"ark:/99999/fk4h{n}", f"jid000000002{n}", runs) for n in range(2))

    assert count(inventory, "inv_findings") == 4 * MANY
    # two rows for each file besides its own, and the files are read once
    assert having < 6 * without


def test_many_findings_are_entered_without_a_copy_of_them(
    inventory: SqlInventory,
    many: tuple[list[str], tuple[CheckRun, ...]],
) -> None:
    names, runs = many
    inventory.record(recording(files=tuple(stored_file(f"producer/{name}") for name in names)))

    tracemalloc.start()
    try:
        inventory.add_checks(ARK, 1, runs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MANY * 1_000
