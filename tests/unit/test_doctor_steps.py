"""What doctor says to do: each step names a heading of the operators' pages."""

import errno
import os
import re
from pathlib import Path

import pytest

from operations.doctor import host
from operations.doctor.fleet import OWN_LINES, todo
from operations.doctor.line import Verdict, clock
from operations.fleet import health
from operations.fleet.fleet import _REMEDIES as OF_FLEET
from operations.fleet.health import HealthProblem
from operations.fleet.record_fault import _REMEDIES as OF_RECORD
from operations.fleet.record_fault import RecordFault
from operations.reasons import Reason
from pipeline.errors import Remedy
from pipeline.outcome import Service
from pipeline.records import now
from pipeline.settings import Settings
from tests.unit.test_docs import anchors
from zkstate.fleet.holds import Hold
from zkstate.fleet.notes import FixityStatus

PROJECT = Path(__file__).parents[2]
PAGES = PROJECT / "docs" / "operators"
SOURCES = sorted((PROJECT / "operations" / "doctor").glob("[!l]*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_each_page_that_a_step_names_has_the_heading(source: Path) -> None:
    named = re.findall(r"([a-z]+)\.md(?:#([\w-]+))?", source.read_text())

    assert [page for page, _ in named if not (PAGES / f"{page}.md").exists()] == []
    assert [
        (page, heading) for page, heading in named if heading and heading not in anchors(PAGES / f"{page}.md")
    ] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_step_ends_with_its_page(source: Path) -> None:
    steps = re.findall(r'step = f?"([^"]{9,})"', source.read_text())

    assert [step for step in steps if not re.search(r"(\.md(#[\w-]+)?\)|\{[\w.]+\})$", step)] == []


STATUS = (
    *health._of_stops(Hold(by="ann", reason="the database is moved", at=now()), ["demo"]),
    *health._of_objects(FixityStatus(damaged=1, overdue=1)),
    *health._of_jobs(for_space=1, failed=1),
    *(health._stopped_by(RecordFault(reason=reason, message="older")) for reason in OF_RECORD),
    *(health._problem(Reason.SERVICE_DOWN, service) for service in Service),
    health._problem(Reason.SERVICE_DOWN, "callback:deposit.example.org"),
    health._problem(Reason.BETWEEN_TRIES, "source", message="timeout"),
    *(health._problem(reason, "", Remedy(action)) for reason, action in OF_FLEET.items()),
)
"""Each problem that the status can name, as it names it."""


def test_the_problems_are_all_that_the_table_of_reasons_has_a_phrase_of_the_fleet_for() -> None:
    assert {problem.reason for problem in STATUS} | OWN_LINES == {one for one in Reason if one.of_fleet}


@pytest.mark.parametrize("problem", STATUS, ids=lambda one: f"{one.reason} {one.waits_for}")
def test_doctor_says_what_to_do_about_each_problem_of_the_status(problem: HealthProblem) -> None:
    steps = todo(problem)

    assert steps
    assert not [step for step in steps if "status" in str(step)]


@pytest.mark.parametrize(
    ("ahead", "uncertain", "verdict"),
    [
        (0.5, 0.1, Verdict.OK),
        (-2.5, 0.1, Verdict.WARNING),
        (2.5, 1.0, Verdict.OK),
        (-3600.0, 0.1, Verdict.FAULT),
    ],
)
def test_only_a_difference_beyond_the_uncertainty_counts(
    ahead: float, uncertain: float, verdict: Verdict
) -> None:
    assert clock("clock", ahead, uncertain).verdict is verdict


@pytest.mark.parametrize(
    ("number", "todo"),
    [(errno.ENOSPC, "enlarge it"), (errno.EDQUOT, "enlarge it"), (errno.EROFS, "mount it")],
)
def test_a_full_disk_is_to_be_enlarged_and_not_to_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, todo: str
) -> None:
    def refuse(descriptor: int, content: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(host, "write_all", refuse)
    lines = {line.name: line for line in host.folder(Settings(home=tmp_path), tmp_path, tmp_path)}

    assert (lines["writing"].verdict, lines["writing"].step.startswith(todo)) == (Verdict.FAULT, True)
