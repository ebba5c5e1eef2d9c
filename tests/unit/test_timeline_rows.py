"""The rows of a job's timeline, as people read it."""

from datetime import UTC, datetime

from operations.jobs.job_view import Step, for_people
from pipeline.states import Event, FailureKind, JobState

AT = datetime(2026, 11, 29, tzinfo=UTC)


def step(state: JobState, event: Event | None, message: str = "", kind: FailureKind | None = None) -> Step:
    return Step(state=state, event=event, at=AT, message=message, kind=kind)


def test_the_result_of_a_state_is_in_its_own_row() -> None:
    history = (
        step(JobState.PENDING, None),
        step(JobState.ESTIMATING, Event.ACQUIRE),
        step(JobState.PROVISIONING, Event.SUCCEED, "about 9.3 kB"),
        step(JobState.DOWNLOADING, Event.SUCCEED, "9.3 kB reserved"),
        step(JobState.DOWNLOADING, None, "the source answered 500", FailureKind.TRANSIENT),
        step(JobState.PROCESSING, Event.SUCCEED, "1 file, 9.3 kB"),
        step(JobState.FAILED, Event.FAIL, "the disk is gone", FailureKind.SYSTEM),
    )

    rows = [(row.state.value, row.message) for row in for_people(history)]

    assert rows == [
        ("pending", ""),
        ("estimating", "about 9.3 kB"),
        ("provisioning", "9.3 kB reserved"),
        ("downloading", ""),
        ("downloading", "the source answered 500"),
        ("processing", "1 file, 9.3 kB"),
        ("failed", "the disk is gone"),
    ]
