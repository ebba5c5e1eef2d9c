import itertools
from collections.abc import Iterator
from typing import TypeVar

import pytest

from pipeline import states
from pipeline.states import (
    ANY,
    BATCH,
    JOB,
    BatchState,
    Bucket,
    Event,
    FailureKind,
    IllegalTransition,
    JobState,
    Machine,
    Raiser,
    bucket,
)

S = TypeVar("S", JobState, BatchState)
MACHINES: tuple[Machine[JobState] | Machine[BatchState], ...] = (JOB, BATCH)
ONWARD = (Event.ACQUIRE, Event.SUCCEED)


def happy_path(machine: Machine[S]) -> Iterator[S]:
    state = machine.initial
    while onward := [event for event in ONWARD if machine.rows(state, event)]:
        yield state
        (event,) = onward
        state = machine.next(state, event)
    yield state


def outside(machine: Machine[S]) -> Iterator[tuple[Machine[S], S, Event]]:
    """Every state with every event that has no row."""
    answered = {(row.source, row.event) for row in machine.table}
    for state, event in itertools.product(machine.states(), Event):
        if (state, event) not in answered:
            yield machine, state, event


def test_a_job_that_meets_no_trouble_visits_the_working_states_in_order() -> None:
    assert tuple(happy_path(JOB)) == (*JOB.working(), JobState.COMPLETED)
    assert JOB.working() == (
        JobState.PENDING,
        JobState.ESTIMATING,
        JobState.PROVISIONING,
        JobState.DOWNLOADING,
        JobState.PROCESSING,
        JobState.RECORDING,
        JobState.NOTIFY,
    )


def test_a_batch_that_meets_no_trouble_is_split_reported_and_completed() -> None:
    assert tuple(happy_path(BATCH)) == (
        BatchState.PENDING,
        BatchState.PROCESSING,
        BatchState.REPORTING,
        BatchState.COMPLETED,
    )


@pytest.mark.parametrize(("machine", "state", "event"), [*outside(JOB), *outside(BATCH)])
def test_what_the_table_does_not_say_is_refused_with_what_is_possible(
    machine: Machine[JobState], state: JobState, event: Event
) -> None:
    with pytest.raises(IllegalTransition) as caught:
        machine.next(state, event)

    possible = ", ".join(sorted(machine.events(state))) or "nothing"
    assert f"{state} {machine.name} cannot {event}; possible in this state: {possible}" in str(caught.value)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_no_two_rows_answer_one_question(machine: Machine[JobState]) -> None:
    for one, other in itertools.combinations(machine.table, 2):
        if (one.source, one.event) == (other.source, other.event):
            assert ANY not in (one.after, other.after)
            assert one.after != other.after


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_state_can_be_reached_and_has_a_meaning(machine: Machine[JobState]) -> None:
    reached = {machine.initial} | {row.target for row in machine.table}

    assert reached == set(machine.states())
    assert all(state.doc for state in machine.states())


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_row_is_raised_by_somebody(machine: Machine[JobState]) -> None:
    assert all(row.by for row in machine.table)


@pytest.mark.parametrize("last", [None, *JOB.working()[1:-1]])
def test_a_failed_job_resumes_where_its_last_success_would_have_led(last: JobState | None) -> None:
    resumed = JOB.initial if last is None else JOB.next(last, Event.SUCCEED)

    assert JOB.next(JobState.FAILED, Event.RESUME, after=last) is resumed


def test_a_job_cannot_resume_after_what_is_no_step() -> None:
    for last in set(JobState) - set(JOB.working()[1:-1]):
        with pytest.raises(IllegalTransition):
            JOB.next(JobState.FAILED, Event.RESUME, after=last)


def test_a_payload_that_was_wrong_from_the_start_cannot_be_resumed() -> None:
    with pytest.raises(IllegalTransition, match="a new submission is required"):
        JOB.next(JobState.FAILED, Event.RESUME, after=None, failure=FailureKind.CONTENT)


@pytest.mark.parametrize("kind", [None, FailureKind.SYSTEM, FailureKind.TRANSIENT])
def test_a_pending_job_that_failed_for_another_reason_resumes(kind: FailureKind | None) -> None:
    assert JOB.next(JobState.FAILED, Event.RESUME, after=None, failure=kind) is JobState.PENDING


@pytest.mark.parametrize("last", JOB.working()[1:-1])
def test_content_that_was_mended_at_its_source_resumes_later_steps(last: JobState) -> None:
    target = JOB.next(JobState.FAILED, Event.RESUME, after=last, failure=FailureKind.CONTENT)

    assert target is JOB.next(last, Event.SUCCEED)


def test_estimating_and_provisioning_never_fail_by_themselves() -> None:
    for state in (JobState.ESTIMATING, JobState.PROVISIONING):
        assert Event.FAIL not in JOB.events(state, by=Raiser.WORKER)


@pytest.mark.parametrize("state", JOB.working())
def test_an_operator_can_fail_a_job_in_any_working_state(state: JobState) -> None:
    assert Event.FAIL in JOB.events(state, by=Raiser.OPERATOR)


def test_nothing_leads_out_of_the_last_states() -> None:
    assert JOB.events(JobState.DELETED) == frozenset()
    assert BATCH.events(BatchState.DELETED) == frozenset()
    assert JOB.next(JobState.COMPLETED, Event.CLEAN_UP) is JobState.COMPLETED


def test_only_what_failed_or_is_held_can_be_deleted_by_an_operator() -> None:
    deletable = {state for state in JobState if Event.DELETE in JOB.events(state, by=Raiser.OPERATOR)}

    assert deletable == {JobState.FAILED, JobState.HELD}


@pytest.mark.parametrize("released", [(JOB, JobState.HELD), (BATCH, BatchState.HELD)])
def test_what_is_held_goes_back_to_where_it_waited(released: tuple[Machine[JobState], JobState]) -> None:
    machine, held = released

    assert machine.next(held, Event.RELEASE) is machine.initial


@pytest.mark.parametrize("state", JobState)
def test_a_batch_keeps_a_job_that_has_not_ended_among_those_at_work(state: JobState) -> None:
    ended = {
        JobState.COMPLETED: Bucket.COMPLETED,
        JobState.FAILED: Bucket.FAILED,
        JobState.DELETED: Bucket.DELETED,
    }

    assert bucket(state) is ended.get(state, Bucket.PROCESSING)


def test_the_page_has_every_row_of_both_tables() -> None:
    page = states.markdown()
    for machine in MACHINES:
        for row in machine.table:
            assert f"| {row.source} | {row.event} | {row.target} |" in page


def test_every_enum_member_says_what_it_means() -> None:
    for kind in (JobState, BatchState, Event, Raiser, FailureKind):
        assert all(member.doc for member in kind)
