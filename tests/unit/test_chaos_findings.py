"""The checker of findings and reviews sees each fault that it is there for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.records import Job, SubmissionType
from pipeline.states import FailureKind, JobState
from tests.servers.clamd import EICAR_NAME
from tests.support import records
from tools.chaos.acts import Acts
from tools.chaos.deposits import REJECTION, VIRUS, Deposit, DepositedObject
from tools.chaos.final_state import CheckedVersion, FileFinding, FinalState, Stored
from tools.chaos.finding_checker import check_findings
from tools.chaos.operator_verbs import REJECTED
from tools.chaos.problem import Category, Problem
from tools.chaos.profiles import REVIEWED, SCANNED, WARNED

A, B, C, D = (records.jid(number) for number in range(1, 5))
CLEAN, INFECTED = frozenset({"clean"}), frozenset({"infected"})
GOOD = DepositedObject("/a", {"f": CLEAN, "g": CLEAN}, profile=SCANNED)
STOPPED = DepositedObject("/b", {"v": INFECTED}, planted=VIRUS, profile=SCANNED, infected=frozenset({"v"}))
WARNING = DepositedObject("/c", {"v": INFECTED}, profile=WARNED, infected=frozenset({"v"}))
REFUSED = DepositedObject("/d", {"f": CLEAN}, planted=REJECTION, profile=REVIEWED)
OBJECTS = {A: GOOD, B: STOPPED, C: WARNING, D: REFUSED}
DEPOSITS = [Deposit(0.0, each.path, SubmissionType.FILE, each.path, (each,)) for each in OBJECTS.values()]

STOP = (
    "the check clamav found something in 1 file: 'v' (finding 3f9a2c41d0b7e655): replace or remove the files"
)
FINE, WORM = FileFinding("f", "fine", ""), FileFinding("v", "found", EICAR_NAME)
KNOWN = FileFinding("f", "fine", "fmt/40")
SCAN = CheckedVersion(A, "clamav", (FINE, replace(FINE, path="g")))
FORMATS = CheckedVersion(A, "pronom", (KNOWN, replace(KNOWN, code="fmt/41"), replace(KNOWN, path="g")))
OTHERS = [CheckedVersion(C, "clamav", (WORM,)), CheckedVersion(C, "pronom", (replace(KNOWN, path="v"),))]


def job(number: int, path: str, state: JobState, message: str = "") -> Job:
    kind = FailureKind.CONTENT if state is JobState.FAILED else None
    return records.a_job(
        number, state, payload_url=f"http://127.0.0.1:1{path}", message=message, kind=kind, primary_id=None
    )


def final(*runs: CheckedVersion) -> FinalState:
    """Two versions with findings, and two jobs that failed as they should."""
    return FinalState(
        jobs={
            A: job(1, "/a", JobState.COMPLETED),
            B: job(2, "/b", JobState.FAILED, STOP),
            C: job(3, "/c", JobState.COMPLETED),
            D: job(4, "/d", JobState.FAILED, REJECTED),
        },
        versions=[
            Stored("ark:/1/a", 1, A, {"producer/f": "clean"}),
            Stored("ark:/1/c", 1, C, {"v": "infected"}),
        ],
        runs=[*(runs or (SCAN, FORMATS)), *OTHERS],
    )


def problems(state: FinalState, acts: Acts | None = None) -> list[Problem]:
    return list(check_findings(DEPOSITS, state, OBJECTS, acts or Acts()))


def with_lines(*lines: FileFinding) -> FinalState:
    return final(replace(SCAN, findings=lines), FORMATS)


def test_nothing_is_said_of_findings_that_are_as_they_should_be() -> None:
    assert problems(final()) == []


def test_a_file_that_was_not_scanned_is_no_problem_if_there_is_a_reason() -> None:
    assert problems(with_lines(FINE, FileFinding("g", "unchecked", "service-died"))) == []


DAMAGES: dict[str, tuple[Category, Callable[[], FinalState]]] = {
    "no run of a check": (Category.LOST, lambda: final(FORMATS)),
    "two runs of a check": (Category.DUPLICATED, lambda: final(SCAN, SCAN, FORMATS)),
    "a run of another check": (Category.ILLEGAL, lambda: final(SCAN, FORMATS, replace(SCAN, check="other"))),
    "a run of a version that is not stored": (
        Category.ILLEGAL,
        lambda: final(SCAN, FORMATS, replace(SCAN, jid=B)),
    ),
    "a file without a finding": (Category.LOST, lambda: with_lines(FINE)),
    "a file with two findings": (
        Category.DUPLICATED,
        lambda: with_lines(FINE, FINE, replace(FINE, path="g")),
    ),
    "a file that was not deposited": (
        Category.LOST,
        lambda: with_lines(*SCAN.findings, replace(FINE, path="h")),
    ),
    "a file that is unchecked without a reason": (
        Category.ILLEGAL,
        lambda: with_lines(FINE, FileFinding("g", "unchecked", "")),
    ),
    "a virus in a clean file": (Category.ILLEGAL, lambda: with_lines(FINE, replace(WORM, path="g"))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checker_sees(damage: str) -> None:
    sort, state = DAMAGES[damage]

    assert sort in {each.sort for each in problems(state())}


def test_a_virus_that_is_called_clean_is_a_problem() -> None:
    state = final()
    state.runs[2] = replace(OTHERS[0], findings=(FileFinding("v", "fine", ""),))

    assert [(each.sort, each.about) for each in problems(state)] == [(Category.ILLEGAL, C)]


@pytest.mark.parametrize("jid", [B, D])
def test_a_job_that_failed_with_another_message_is_a_problem(jid: str) -> None:
    state = final()
    status = state.jobs[jid].status.model_copy(update={"message": "something else"})
    state.jobs[jid] = state.jobs[jid].model_copy(update={"status": status})

    assert [(each.sort, each.about) for each in problems(state)] == [(Category.ILLEGAL, jid)]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_virus_that_is_stored_where_it_has_to_stop_the_job_is_a_problem(deleted: bool) -> None:
    state, acts = final(), Acts()
    state.versions.append(Stored("ark:/1/b", 1, B, {"producer/v": "infected"}))
    if deleted:
        acts.deleted_jobs[B] = "/b"
        del state.jobs[B]
    objects = {jid: each for jid, each in OBJECTS.items() if jid in state.jobs}

    complaints = list(check_findings(DEPOSITS, state, objects, acts))

    assert [(each.sort, each.about) for each in complaints] == [(Category.ILLEGAL, B)]


def test_the_findings_of_a_job_that_lost_its_working_directory_may_be_absent_and_no_others() -> None:
    acts = Acts(lost_folders={A})

    assert problems(final(FORMATS), acts) == []
    assert problems(final(FORMATS)) != []
    assert problems(final(SCAN, SCAN, FORMATS), acts) != []
