import itertools
from collections.abc import Iterator
from typing import TypeVar

import pytest

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
    Queue,
    Raiser,
    Room,
    StateFacts,
    Task,
    Transition,
    bucket,
)
from tools.states_page import markdown

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


def test_a_job_without_faults_visits_the_working_states_in_the_order_of_their_definition() -> None:
    assert tuple(happy_path(JOB)) == (*JOB.working(), JobState.COMPLETED)
    assert JOB.working() == tuple(state for state in JobState if JOB.facts[state].task)


def test_a_step_reads_content_after_it_was_downloaded_and_before_it_is_recorded() -> None:
    reading = set(JOB.where(lambda facts: facts.reads_content))

    assert JobState.PROCESSING in reading
    assert reading <= set(JOB.after(JobState.DOWNLOADING)) - {JobState.RECORDING, JobState.NOTIFY}


@pytest.mark.parametrize("state", JOB.where(lambda facts: facts.reads_content))
def test_a_job_whose_content_is_gone_goes_back_to_where_it_gets_room(state: JobState) -> None:
    assert JOB.next(state, Event.DOWNLOAD_AGAIN) is JobState.PROVISIONING


def test_a_batch_without_faults_is_split_reported_and_completed() -> None:
    assert tuple(happy_path(BATCH)) == (
        BatchState.PENDING,
        BatchState.PROCESSING,
        BatchState.REPORTING,
        BatchState.COMPLETED,
    )


@pytest.mark.parametrize(("machine", "state", "event"), [*outside(JOB), *outside(BATCH)])
def test_an_event_without_a_row_is_refused_with_what_is_possible(
    machine: Machine[JobState], state: JobState, event: Event
) -> None:
    with pytest.raises(IllegalTransition) as caught:
        machine.next(state, event)

    possible = ", ".join(sorted(machine.events(state))) or "nothing"
    assert f"{state} {machine.name} cannot {event}; possible in this state: {possible}" in str(caught.value)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_no_two_rows_answer_one_question(machine: Machine[JobState]) -> None:
    for one, other in itertools.combinations(machine.table, 2):
        if (one.source, one.event) == (other.source, other.event) and one.by & other.by:
            assert ANY not in (one.after, other.after)
            both = not one.room or not other.room or one.room & other.room
            answers = (one.named, one.named and one.target), (other.named, other.named and other.target)
            assert one.after != other.after or not both or answers[0] != answers[1]


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


def test_a_job_cannot_resume_after_a_state_that_is_no_step() -> None:
    for last in set(JobState) - set(JOB.working()[1:-1]):
        with pytest.raises(IllegalTransition):
            JOB.next(JobState.FAILED, Event.RESUME, after=last)


def test_a_job_whose_payload_was_wrong_cannot_be_resumed() -> None:
    with pytest.raises(IllegalTransition, match="a new submission is required"):
        JOB.next(JobState.FAILED, Event.RESUME, after=None, failure=FailureKind.CONTENT)


@pytest.mark.parametrize("kind", [None, FailureKind.SYSTEM, FailureKind.TRANSIENT])
def test_a_pending_job_that_failed_for_another_reason_resumes(kind: FailureKind | None) -> None:
    assert JOB.next(JobState.FAILED, Event.RESUME, after=None, failure=kind) is JobState.PENDING


@pytest.mark.parametrize("last", JOB.working()[1:-1])
def test_content_that_was_corrected_at_its_source_resumes_later_steps(last: JobState) -> None:
    target = JOB.next(JobState.FAILED, Event.RESUME, after=last, failure=FailureKind.CONTENT)

    assert target is JOB.next(last, Event.SUCCEED)


def test_estimating_never_fails_by_itself() -> None:
    assert Event.FAIL not in JOB.events(JobState.ESTIMATING, by=Raiser.WORKER)


@pytest.mark.parametrize("last", JOB.working()[1:-1])
def test_a_failed_job_can_be_resumed_from_each_step_that_it_reached(last: JobState) -> None:
    steps = JOB.working()
    reached = steps[: steps.index(last) + 2]

    assert JOB.targets_now(JobState.FAILED, Event.RESUME, last, None) == reached
    for step in reached:
        assert JOB.next(JobState.FAILED, Event.RESUME, last, named=step) is step


@pytest.mark.parametrize("last", JOB.working()[1:-1])
def test_a_failed_job_cannot_be_resumed_from_a_step_that_it_did_not_reach(last: JobState) -> None:
    steps = JOB.working()

    for step in (*steps[steps.index(last) + 2 :], JobState.COMPLETED, JobState.HELD):
        refusal = f"resume cannot lead this job to {step}; possible: pending"
        with pytest.raises(IllegalTransition, match=refusal):
            JOB.next(JobState.FAILED, Event.RESUME, last, named=step)


@pytest.mark.parametrize("room", [Room.YIELDED, Room.EMPTY])
@pytest.mark.parametrize("last", JOB.working()[1:-1])
def test_a_job_that_needs_room_again_resumes_where_it_gets_a_reservation(last: JobState, room: Room) -> None:
    following = JOB.next(last, Event.SUCCEED)
    needs_room = following is JobState.DOWNLOADING or (
        room is Room.EMPTY and JOB.facts[following].reads_content
    )
    target = JobState.PROVISIONING if needs_room else following

    assert JOB.next(JobState.FAILED, Event.RESUME, last, room=room) is target


@pytest.mark.parametrize("room", [Room.YIELDED, Room.EMPTY])
def test_no_job_is_resumed_in_downloading_without_a_reservation(room: Room) -> None:
    for last in JOB.working()[1:-1]:
        assert JobState.DOWNLOADING not in JOB.targets_now(JobState.FAILED, Event.RESUME, last, None, room)


@pytest.mark.parametrize("state", JOB.working())
def test_an_operator_can_fail_a_job_in_any_working_state(state: JobState) -> None:
    assert Event.FAIL in JOB.events(state, by=Raiser.OPERATOR)


@pytest.mark.parametrize("state", [state for state in JobState if not JOB.facts[state].ended])
def test_an_operator_fails_no_job_that_is_recorded(state: JobState) -> None:
    if Event.FAIL in JOB.events(state, by=Raiser.OPERATOR):
        target = JOB.next(state, Event.FAIL, by=Raiser.OPERATOR)

        assert target is (JobState.COMPLETED if JOB.facts[state].recorded else JobState.FAILED)


def test_only_an_operator_leads_out_of_a_review() -> None:
    assert JOB.events(JobState.REVIEW) == JOB.events(JobState.REVIEW, by=Raiser.OPERATOR)
    assert JOB.next(JobState.REVIEW, Event.APPROVE) is JOB.next(JobState.DOWNLOADING, Event.SUCCEED)
    assert JOB.next(JobState.REVIEW, Event.REJECT) is JobState.FAILED


@pytest.mark.parametrize("room", [Room.YIELDED, Room.EMPTY])
def test_a_job_that_was_rejected_never_resumes_behind_the_review(room: Room) -> None:
    last = JobState.PROVISIONING  # a download in review has not succeeded
    content = FailureKind.CONTENT
    steps = JOB.targets_now(JobState.FAILED, Event.RESUME, last, content, room)

    assert JOB.next(JobState.FAILED, Event.RESUME, last, content, room) is JobState.PROVISIONING
    assert not set(steps) & {JobState.REVIEW, *JOB.after(JobState.DOWNLOADING)}


def test_an_earlier_table_knows_no_review() -> None:
    rows = JOB.of_version(2)

    assert not [row for row in rows if JobState.REVIEW in (row.source, row.target)]
    assert set(rows) <= set(JOB.of_version(3))


def test_nothing_leads_out_of_the_last_states() -> None:
    assert JOB.events(JobState.DELETED) == frozenset()
    assert BATCH.events(BatchState.DELETED) == frozenset()
    assert JOB.next(JobState.COMPLETED, Event.CLEAN_UP) is JobState.COMPLETED


def test_an_operator_can_delete_failed_and_held_jobs_only() -> None:
    deletable = {state for state in JobState if Event.DELETE in JOB.events(state, by=Raiser.OPERATOR)}

    assert deletable == {JobState.FAILED, JobState.HELD}


@pytest.mark.parametrize("released", [(JOB, JobState.HELD), (BATCH, BatchState.HELD)])
def test_a_release_leads_back_to_pending(released: tuple[Machine[JobState], JobState]) -> None:
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
    page = markdown()
    for machine in MACHINES:
        for row in machine.table:
            assert f"| {row.source} | {row.event} | {row.target} |" in page


def test_every_enum_member_says_what_it_means() -> None:
    for kind in (JobState, BatchState, Event, Raiser, FailureKind, Queue):
        assert all(member.doc for member in kind)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_working_state_has_a_task_and_no_other_state_has_one(machine: Machine[JobState]) -> None:
    assert set(machine.working()) == set(machine.where(lambda facts: facts.task is not None))
    for state in set(machine.states()) - set(machine.working()):
        with pytest.raises(IllegalTransition, match="no worker acts"):
            machine.task(state)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_state_has_ended_if_neither_a_worker_nor_a_decision_leads_on(machine: Machine[JobState]) -> None:
    held = [row.source for row in machine.table if row.event in (Event.RELEASE, Event.APPROVE)]

    assert set(machine.where(lambda facts: facts.ended)) == (
        set(machine.states()) - set(machine.working()) - set(held)
    )


def test_a_batch_is_open_while_a_worker_acts_on_it_or_it_is_being_removed() -> None:
    assert set(BATCH.where(lambda facts: facts.open)) == {*BATCH.working(), BatchState.DELETED}


def test_a_job_holds_space_from_its_reservation_to_its_end() -> None:
    order = [state for state in JobState if not JOB.facts[state].ended]

    assert [*JOB.where(lambda facts: facts.holds_space)] == order[order.index(JobState.PROVISIONING) + 1 :]


def test_a_job_that_waits_in_a_queue_or_for_space_occupies_no_place() -> None:
    occupying = JOB.where(lambda facts: facts.occupies_place)

    assert set(JOB.working()) - set(occupying) == {JobState.PENDING, JobState.PROVISIONING}


@pytest.mark.parametrize("last", [None, *JOB.working()[1:-1]])
@pytest.mark.parametrize("kind", [None, *FailureKind])
@pytest.mark.parametrize("state", JobState)
def test_the_possible_events_are_those_that_the_table_does_not_refuse(
    state: JobState, kind: FailureKind | None, last: JobState | None
) -> None:
    possible = JOB.possible(state, Raiser.OPERATOR, last, kind)

    for event in JOB.events(state, Raiser.OPERATOR):
        if event in possible:
            JOB.next(state, event, last, kind)
        else:
            with pytest.raises(IllegalTransition):
                JOB.next(state, event, last, kind)


def a_table(*rows: Transition[BatchState], **tasks: Task) -> Machine[BatchState]:
    facts = {state: StateFacts(tasks.get(state.name.lower())) for state in BatchState}
    return Machine("toy", BatchState.PENDING, facts, rows)


WORKER = frozenset({Raiser.WORKER})
SPLIT = Transition(BatchState.PENDING, Event.SUCCEED, BatchState.COMPLETED, WORKER)


def test_a_table_with_a_working_state_that_has_no_task_is_refused() -> None:
    with pytest.raises(TypeError, match="no task does the work of a pending toy"):
        a_table(SPLIT)


def test_a_table_with_a_task_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(TypeError, match="the task of a held toy"):
        a_table(SPLIT, pending=Task("split", Queue.IO), held=Task("hold", Queue.IO))


def test_a_table_without_facts_about_a_state_is_refused() -> None:
    with pytest.raises(TypeError, match="no facts about the toy states held"):
        Machine("toy", BatchState.PENDING, {BatchState.PENDING: StateFacts(Task("a", Queue.IO))}, (SPLIT,))


def test_a_row_applies_from_its_first_to_its_last_version() -> None:
    old = Transition(BatchState.PENDING, Event.SUCCEED, BatchState.COMPLETED, WORKER, until=1)
    new = Transition(BatchState.PENDING, Event.SUCCEED, BatchState.REPORTING, WORKER, since=2)
    machine = a_table(old, new, pending=Task("split", Queue.IO))

    assert machine.version == 2
    assert machine.next(BatchState.PENDING, Event.SUCCEED) is BatchState.REPORTING
    assert machine.targets(BatchState.PENDING, Event.SUCCEED, 1) == {BatchState.COMPLETED}
    assert machine.targets(BatchState.PENDING, Event.SUCCEED, 2) == {BatchState.REPORTING}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_the_current_rows_are_those_of_the_current_version(machine: Machine[JobState]) -> None:
    assert machine.table == machine.of_version(machine.version)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_raisers_of_the_table_are_known(machine: Machine[JobState] | Machine[BatchState]) -> None:
    known = frozenset(Raiser)

    assert [row for row in machine.table if not row.by or not row.by <= known] == []
    assert known == {raiser for row in machine.table for raiser in row.by}
