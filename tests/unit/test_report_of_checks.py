"""What checks found is in every form of the report: never more than was found, and never less."""

import csv
import io
import json
from typing import Any

import pytest

from pipeline.checks import CheckRun, CheckSummary, CheckVerdict, Obstacle, Overrule, Stopping, latest
from pipeline.notify.batch_report import REPORTED_FINDINGS, BatchReport, compose_report
from pipeline.notify.report_mail import as_csv, as_html, as_json, as_text, report_mail
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.states import FailureKind, JobState
from tests.support.checks import found_in, identified, scanned
from tests.support.records import AT, a_batch, a_job

PROFILE = Profile(
    name="demo",
    owner="ark:/99999/j2000000",
    collections=("ark:/99999/m5000000",),
    notification=("ann@example.org",),
)
VIRUS = found_in("b.exe", "Win.Test.EICAR_HDB-1")
TOO_LARGE = found_in("c.iso", Obstacle.TOO_LARGE, CheckVerdict.UNCHECKED, "larger than StreamMaxLength")
ENCRYPTED = found_in("d.zip", Obstacle.ENCRYPTED, CheckVerdict.UNCHECKED)


def checked(*runs: CheckRun) -> tuple[CheckSummary, ...]:
    """As the record of a job has them."""
    return latest(*map(CheckSummary.of, runs))


def stopped(number: int = 1, *runs: CheckRun) -> Job:
    found = Stopping(finding="3f9a2c41d0b7e655", codes=("Win.Test.EICAR_HDB-1",))
    message = "the check clamav found something in 1 file: 'b.exe' (a virus) (finding 3f9a2c41d0b7e655)"
    return a_job(
        number,
        JobState.FAILED,
        kind=FailureKind.CONTENT,
        message=message,
        last_successful_status=JobState.DOWNLOADING,
        checks=latest(
            *(CheckSummary.of(run, stopping=found) for run in runs or (scanned("a.txt", VIRUS, TOO_LARGE),))
        ),
    )


def report(*jobs: Job) -> BatchReport:
    return compose_report(a_batch(), jobs, at=AT)


def cells(of: BatchReport) -> list[str]:
    """What the table for a spreadsheet says of checks, by object."""
    rows = csv.DictReader(io.StringIO(as_csv(of)[1:], newline=""), strict=True)
    return [row["checks"] for row in rows]


def lines(text: str) -> str:
    return " ".join(text.split())


def test_of_an_object_in_which_everything_is_fine_the_text_says_nothing_and_the_tables_give_the_counts() -> (
    None
):
    of = report(a_job(1, checks=checked(scanned("a.txt", "b.txt"), identified({"a.txt": "fmt/18"}))))

    assert "checks" not in as_text(of)
    assert cells(of) == ["clamav: 2 files fine. pronom: 1 file fine"]
    assert "clamav: 2 files fine. pronom: 1 file fine" in as_html(of)


def test_of_an_object_without_a_run_of_a_check_no_form_says_anything() -> None:
    of = report(a_job(1))

    assert cells(of) == [""]
    assert "checks" not in as_text(of) + as_html(of)
    assert json.loads(as_json(of))["completed"][0]["checks"] is None


def test_a_file_that_was_not_checked_is_in_every_form() -> None:
    of = report(
        a_job(1, remark="the check clamav did not check ...", checks=checked(scanned("a.txt", ENCRYPTED)))
    )
    said = "clamav: 1 file not checked; 1 file fine"

    assert f"checks: {said}" in lines(as_text(of))
    assert said in as_html(of)
    assert cells(of) == [said]
    (run,) = json.loads(as_json(of))["completed"][0]["checks"]
    assert (run["fine"], run["found"], run["unchecked"]) == (1, 0, 1)
    assert run["findings"] == [{"path": "d.zip", "verdict": "unchecked", "code": "encrypted", "message": ""}]


def test_a_check_that_had_no_files_does_not_call_the_object_fine() -> None:
    assert cells(report(a_job(1, checks=checked(scanned())))) == ["clamav: no files"]


def test_an_object_that_a_finding_stopped_says_in_which_files_and_what_to_do() -> None:
    of = report(stopped())
    said = (
        "clamav: something found in 1 file: 'b.exe' (Win.Test.EICAR_HDB-1); 1 file not checked: 'c.iso' "
        "(larger than StreamMaxLength); 1 file fine"
    )
    (line,) = of.failed

    assert f"checks: {said} what to do: Replace or remove the files" in lines(as_text(of))
    assert cells(of) == [said]
    assert "they can decide to keep it" in line.advice


def test_a_failure_that_no_finding_caused_keeps_its_advice() -> None:
    failed = a_job(
        1,
        JobState.FAILED,
        kind=FailureKind.CONTENT,
        message="a.txt: the digest differs",
        last_successful_status=JobState.PROVISIONING,
        checks=checked(scanned("a.txt")),
    )

    (line,) = report(failed).failed

    assert line.advice.startswith("Correct the problem")


def test_a_decision_of_staff_is_reported_without_the_person_and_the_reason() -> None:
    decision = Overrule(by="olga", at=AT, reason="kept for research")
    run = scanned(VIRUS).model_copy(update={"overruled": decision})
    of = report(a_job(1, checks=checked(run)))

    assert cells(of) == ["clamav: something found in 1 file; our staff decided to keep what was found"]
    mail = report_mail(of, PROFILE, a_batch().submission, "arkline@example.org").as_string()
    assert "olga" not in mail + as_json(of)
    assert "research" not in mail + as_json(of)


def test_an_object_with_ten_thousand_findings_has_a_short_list_and_a_count() -> None:
    findings = (found_in(f"{number}.exe", "Win.Test.EICAR_HDB-1") for number in range(10_000))
    of = report(stopped(1, scanned(*findings)))

    assert "something found in 10,000 files" in cells(of)[0]
    assert cells(of)[0].count(".exe") == 5
    assert len(as_json(of)) < 8_000


def test_a_report_of_many_objects_names_a_limited_number_of_findings_and_counts_all() -> None:
    files = [found_in(f"{number}.exe", "Win.Test.EICAR_HDB-1") for number in range(10)]
    of = report(*(stopped(number, scanned(*files)) for number in range(1, 301)))

    runs: list[dict[str, Any]] = [line["checks"][0] for line in json.loads(as_json(of))["failed"]]
    assert sum(len(run["findings"]) for run in runs) == REPORTED_FINDINGS
    assert {run["found"] for run in runs} == {10}
    assert set(cells(of)[200:]) == {"clamav: something found in 10 files"}


@pytest.mark.parametrize("name", ["=1+1", "a;=1+1"])
def test_the_name_of_a_file_with_a_finding_is_no_formula(name: str) -> None:
    cell = cells(report(stopped(1, scanned(found_in(name, "=2+2")))))[0]

    assert cell.startswith("clamav: ")
    assert ";=" not in cell
