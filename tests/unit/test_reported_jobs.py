import tracemalloc
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from pipeline.notify.batch_report import BatchReport, ReportedJob, ReportedJobs, compose_reported
from pipeline.packed import BLOCK
from pipeline.states import JobState
from tests.support.records import a_batch

COUNT = 2 * BLOCK + 3


def line(number: int, state: JobState = JobState.COMPLETED) -> ReportedJob:
    return ReportedJob(
        jid=f"jid{number:010d}",
        name=f"{number}\n\u00fc.txt",
        local_id=(f"l-{number}",),
        ark=f"ark:/99999/fk4{number:06d}",
        title=f"Title of {number}",
        state=state,
    )


def lines(count: int) -> Iterator[ReportedJob]:
    return map(line, range(1, count + 1))


def test_the_jobs_of_a_report_are_those_that_were_packed_in_their_order() -> None:
    packed = ReportedJobs.of(lines(COUNT))

    assert (len(packed), list(packed)) == (COUNT, list(lines(COUNT)))
    assert packed[BLOCK - 1 : BLOCK + 1] == (line(BLOCK), line(BLOCK + 1))
    assert packed[-1] == line(COUNT)
    assert not ReportedJobs.of(())


def test_the_lines_of_a_report_may_come_in_any_order() -> None:
    states = [JobState.COMPLETED, JobState.FAILED, JobState.PROCESSING]
    ordered = [line(number, states[number % 3]) for number in range(1, COUNT)]

    report = compose_reported(a_batch(), ordered)
    reverse = compose_reported(a_batch(), reversed(ordered), at=report.reported_at)

    assert report == reverse
    assert [job for _, jobs in report.sections for job in jobs if job.state is JobState.FAILED] == [
        job for job in ordered if job.state is JobState.FAILED
    ]


def test_a_report_of_many_jobs_is_written_and_read_as_lists() -> None:
    report = compose_reported(a_batch(), lines(COUNT))
    dumped = report.model_dump(mode="json")

    assert dumped["completed"][0] == line(1).model_dump(mode="json")
    assert (len(dumped["completed"]), dumped["failed"]) == (COUNT, [])
    assert BatchReport.model_validate(dumped) == report
    assert BatchReport.model_validate_json(report.model_dump_json()) == report


def test_a_line_that_is_none_is_refused() -> None:
    dumped = compose_reported(a_batch(), lines(2)).model_dump(mode="json")
    dumped["completed"][1] = {"jid": "jid0000000002"}

    with pytest.raises(ValidationError, match=r"completed\.1\.name"):
        BatchReport.model_validate(dumped)


def test_a_report_needs_little_memory_for_a_job() -> None:
    compose_reported(a_batch(), lines(2))
    tracemalloc.start()
    try:
        report = compose_reported(a_batch(), lines(10_000))
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert report.counts.completed == 10_000
    assert kept < 200 * 10_000  # bytes
    assert most < 300 * 10_000
