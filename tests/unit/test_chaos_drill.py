"""The drills at the end of a run see what a restore or an export got wrong."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import bagit
import pytest

from pipeline.states import JobState
from tests.support import records
from tools.chaos.acts import Acts, Backup, Exported
from tools.chaos.drill import check_bag
from tools.chaos.final_state import FinalState, Stored
from tools.chaos.problem import Category, Problem
from tools.chaos.restored_checker import Restored, check_restored

BEFORE, AFTER = records.jid(1), records.jid(2)
ARK = "ark:/99999/fk41"
ENTRIES = (
    Stored(ARK, 1, BEFORE, {"producer/a": "digest"}),
    Stored("ark:/99999/fk42", 1, AFTER, {"producer/b": "digest"}),
)
BACKUP = Backup(Path("1"), frozenset({BEFORE}))


def at_the_end() -> FinalState:
    jobs = {jid: records.a_job(number, JobState.COMPLETED) for number, jid in ((1, BEFORE), (2, AFTER))}
    return FinalState(
        jobs=jobs,
        batches={records.BID: records.a_batch()},
        versions=list(ENTRIES),
        entries=list(ENTRIES),
        local_ids={"mine": ARK},
    )


def restored() -> Restored:
    """The second job was submitted after the backup: only storage and inventory know it."""
    state = at_the_end()
    del state.jobs[AFTER]
    return Restored(state, last_job=1002, last_batch=1001)


def found(state: Restored, acts: Acts | None = None) -> list[Problem]:
    return list(check_restored(BACKUP, state, at_the_end(), acts or Acts()))


def test_a_restore_that_is_as_it_should_be_has_no_problem() -> None:
    assert found(restored()) == []


def with_state(state: Restored, jid: str, status: JobState) -> None:
    state.state.jobs[jid] = records.a_job(int(jid[3:]), status)


DAMAGES: dict[str, tuple[Category, Callable[[Restored], object]]] = {
    "a completed job that is gone": (Category.LOST, lambda r: r.state.jobs.clear()),
    "a completed job that starts again": (Category.LOST, lambda r: with_state(r, BEFORE, JobState.PENDING)),
    "a version of the backup that is not entered": (Category.LOST, lambda r: r.state.entries.pop(0)),
    "a version after the backup that is not entered": (Category.LOST, lambda r: r.state.entries.pop(1)),
    "an entry with other files": (
        Category.LOST,
        lambda r: r.state.entries.__setitem__(1, replace(ENTRIES[1], files={})),
    ),
    "a local id that names another object": (
        Category.DUPLICATED,
        lambda r: r.state.local_ids.update(mine="ark:/99999/fk42"),
    ),
    "a local id that is free again": (Category.DUPLICATED, lambda r: r.state.local_ids.clear()),
    "a finding of the auditor": (Category.AUDIT, lambda r: r.state.findings.append("/jobs/x: odd")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_drill_sees(damage: str) -> None:
    sort, do = DAMAGES[damage]
    state = restored()
    do(state)

    assert {problem.sort for problem in found(state)} == {sort}


def test_the_drill_sees_numbers_that_would_be_given_again() -> None:
    for state in (replace(restored(), last_job=1), replace(restored(), last_batch=0)):
        assert {problem.sort for problem in found(state)} == {Category.DUPLICATED}


def test_the_version_of_a_job_that_runs_again_is_entered_by_the_job() -> None:
    state = restored()
    with_state(state, AFTER, JobState.PROCESSING)
    state.state.entries.pop(1)

    assert found(state) == []


def test_the_version_of_a_job_that_an_operator_deleted_need_not_be_entered() -> None:
    state = restored()
    state.state.entries.pop(1)

    assert found(state, Acts(deleted_jobs={AFTER: "/b"})) == []


@pytest.fixture
def bag(tmp_path: Path) -> Exported:
    (tmp_path / "bag" / "producer").mkdir(parents=True)
    (tmp_path / "bag" / "producer" / "a").write_bytes(b"content")
    bagit.make_bag(str(tmp_path / "bag"), checksums=["sha512"])
    return Exported(tmp_path / "bag", ARK, 1)


def stored(body: bytes) -> FinalState:
    files = {"producer/a": hashlib.sha512(body).hexdigest()}
    return FinalState(versions=[Stored(ARK, 1, BEFORE, files)])


def test_a_bag_with_the_bytes_of_its_version_has_no_problem(bag: Exported) -> None:
    assert list(check_bag(bag, stored(b"content"))) == []


def test_the_drill_sees_a_bag_with_other_bytes_than_storage_or_than_its_manifest(bag: Exported) -> None:
    (other,) = check_bag(bag, stored(b"other"))
    (bag.folder / "data" / "producer" / "a").write_bytes(b"changed")
    (changed,) = check_bag(bag, stored(b"changed"))

    assert other.sort is changed.sort is Category.ILLEGAL
    assert "other files than storage" in other.text
    assert "not valid" in changed.text
