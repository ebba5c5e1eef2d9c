"""What is slow: longer in a state than 95 % of the jobs that left it lately."""

from operations.board.tally import ENOUGH, PERIOD, REMEMBERED, SHORTEST, RecentStays
from pipeline.states import JobState

STATE = JobState.DOWNLOADING


def test_a_job_is_slow_beyond_what_95_of_100_needed() -> None:
    stays = RecentStays()
    for number in range(100):
        stays.add(STATE, 100.0 + number)

    assert stays.usual() == {STATE: 195.0}


def test_of_a_state_that_few_jobs_have_left_nothing_is_said() -> None:
    stays = RecentStays()
    for _ in range(ENOUGH - 1):
        stays.add(STATE, 100.0)

    assert stays.usual() == {}


def test_nothing_is_slow_within_seconds() -> None:
    stays = RecentStays()
    for _ in range(ENOUGH):
        stays.add(STATE, 0.1)

    assert stays.usual() == {STATE: SHORTEST}


def test_how_long_jobs_are_pending_is_not_judged() -> None:
    stays = RecentStays()
    for _ in range(ENOUGH):
        stays.add(JobState.PENDING, 100.0)

    assert stays.usual() == {}


def test_stays_of_another_day_do_not_count() -> None:
    moment = [0.0]
    stays = RecentStays(lambda: moment[0])
    for _ in range(ENOUGH):
        stays.add(STATE, 100.0)
    moment[0] = PERIOD + 1

    assert stays.usual() == {}


def test_the_stays_of_a_busy_fleet_need_bounded_memory() -> None:
    stays = RecentStays()
    for _ in range(REMEMBERED):
        stays.add(STATE, 1000.0)
    for _ in range(REMEMBERED):
        stays.add(STATE, 100.0)

    assert stays.usual() == {STATE: 100.0}
