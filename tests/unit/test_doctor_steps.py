"""What doctor says to do: each step names a heading of the operators' pages."""

import re
from pathlib import Path

import pytest

from operations.doctor.line import Verdict, clock
from tests.unit.test_docs import anchors

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
