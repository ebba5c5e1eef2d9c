"""The report as a table: every object with its ARK, and nothing that a spreadsheet would run."""

import csv
import io

import pytest

from pipeline.notify.batch_report import compose_report
from pipeline.notify.report_mail import COLUMNS, as_csv
from pipeline.records import Job
from pipeline.states import FailureKind, JobState
from tests.support.records import a_batch, a_job, jid


def rows(*jobs: Job) -> list[list[str]]:
    text = as_csv(compose_report(a_batch(), jobs))
    assert text[0] == "\N{ZERO WIDTH NO-BREAK SPACE}", "Excel would read another encoding"
    return list(csv.reader(io.StringIO(text[1:], newline=""), strict=True))


def test_every_object_has_a_row_with_its_names_its_ark_and_its_end() -> None:
    completed = a_job(1, JobState.COMPLETED, local_id=("shelf 1", "box 2"), payload_name="a.checkm")
    failed = a_job(
        2, JobState.FAILED, kind=FailureKind.CONTENT, message="the digest differs", primary_id=None
    )

    head, first, second = rows(completed, failed)

    assert head == list(COLUMNS)
    assert first[:1] + first[2:3] + first[4:7] == ["2.checkm", "", "failed", jid(2), "the digest differs"]
    assert first[7].startswith("Correct the problem")
    assert second[:6] == ["a.checkm", "shelf 1; box 2", "ark:/99999/fk41", "", "completed", jid(1)]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1+1", "\uff20SUM(A1)", " =1+1"])
def test_a_depositors_text_is_no_formula(name: str) -> None:
    _, row = rows(a_job(1, JobState.COMPLETED, payload_name=name))

    assert row[0] == f"'{name}"


@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_a_text_that_another_delimiter_would_split_is_no_formula(delimiter: str) -> None:
    _, row = rows(a_job(1, JobState.COMPLETED, payload_name=f"a{delimiter}=1+1"))

    assert "=1+1" in row[0]
    assert f"{delimiter}=" not in row[0]


def test_every_cell_is_quoted() -> None:
    text = as_csv(compose_report(a_batch(), [a_job(1, JobState.COMPLETED)]))

    assert all(line.startswith('"') and line.endswith('"') for line in text[1:].splitlines())


def test_a_line_break_in_a_name_makes_no_row() -> None:
    _, row = rows(a_job(1, JobState.COMPLETED, payload_name="a\nb,c"))

    assert row[0] == "a b,c"
