"""Rows and pairs that histories have met, and what the next history is steered towards."""

from pipeline.machine import Room
from pipeline.states import JOB, Event, JobState
from tools.simulation.coverage import PAIRS, PLACES, ROWS, UNREACHABLE, Coverage
from tools.simulation.facts import rows_of
from tools.simulation.history import FAULTS_OF_A_HISTORY, Outcome
from tools.simulation.plan import plan_of

FAULTS = tuple(FAULTS_OF_A_HISTORY)


def failed(after: JobState, room: Room) -> dict[str, str]:
    return {"status": JobState.FAILED, "last_successful_status": after, "room": room}


def test_each_row_of_the_tables_has_a_name_of_its_own() -> None:
    assert len(set(ROWS)) == len(ROWS)
    assert len(set(PLACES)) == len(PLACES)


def test_what_cannot_be_met_is_a_row_or_a_pair_and_has_a_reason() -> None:
    assert UNREACHABLE.keys() <= {*ROWS, *PAIRS}
    assert all(UNREACHABLE.values())


def test_a_move_is_the_row_of_its_last_success_and_room() -> None:
    after = failed(JobState.DOWNLOADING, Room.EMPTY)

    assert rows_of(JOB, after, Event.RESUME, JobState.PROVISIONING) == {
        "job failed resume provisioning after downloading, room empty"
    }


def test_a_state_that_an_operator_names_is_a_row_of_its_own() -> None:
    after = failed(JobState.DOWNLOADING, Room.KEPT)

    assert rows_of(JOB, after, Event.RESUME, JobState.PENDING) == {
        "job failed resume pending after downloading, if named"
    }


def test_goals_are_what_was_not_met_and_follow_from_the_seed() -> None:
    coverage = Coverage()
    coverage.add(Outcome(1, rows=list(ROWS[5:]), pairs=list(PAIRS[3:])))

    assert coverage.goals(1) == coverage.goals(1)
    assert set(coverage.goals(1)) <= {*ROWS[:5], *PAIRS[:3]}


def test_what_was_met_and_is_listed_nowhere_is_named() -> None:
    coverage = Coverage()
    coverage.add(Outcome(1, pairs=["process killed at a new place"]))

    assert "not listed in coverage.py: process killed at a new place" in coverage.text()


def test_a_plan_follows_from_its_seed_and_gives_a_row_that_is_a_goal_the_largest_weight() -> None:
    row = "job failed resume pending after processing, if named"
    plan = plan_of(3, [row], FAULTS, 20)

    assert plan == plan_of(3, [row], FAULTS, 20)
    assert plan.verbs[row] == plan.verbs["job recording fail failed"] == max(plan.verbs.values())
