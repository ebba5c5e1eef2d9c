from datetime import UTC, datetime, timedelta

from entrypoints.web.pages import drawings
from operations.jobs.job_view import Step
from pipeline.principal import Interface
from pipeline.states import Event, FailureKind, JobState

START = datetime(2026, 11, 1, tzinfo=UTC)


def step(after: float, state: JobState, event: Event | None, **values: object) -> Step:
    given = {"state": state, "event": event, "at": START + timedelta(seconds=after), **values}
    return Step.model_validate(given)


def test_the_stays_fill_the_whole_width_in_proportion_to_their_time() -> None:
    steps = (
        step(0, JobState.PENDING, None),
        step(10, JobState.ESTIMATING, Event.ACQUIRE),
        step(20, JobState.PROVISIONING, Event.SUCCEED),
        step(40, JobState.DOWNLOADING, Event.SUCCEED),
    )
    drawn = drawings.of_history(steps, ended=False, moment=START + timedelta(seconds=80))

    assert [part.state for part in drawn.segments] == ["pending", "estimating", "provisioning", "downloading"]
    assert [part.width for part in drawn.segments] == [125, 125, 250, 500]
    assert [part.x for part in drawn.segments] == [0, 125, 250, 500]
    assert [part.waits for part in drawn.segments] == [True, False, True, False]


def test_a_state_of_some_milliseconds_is_visible() -> None:
    steps = (
        step(0, JobState.PENDING, None),
        step(0.001, JobState.ESTIMATING, Event.ACQUIRE),
        step(100, JobState.COMPLETED, Event.SUCCEED),
    )
    drawn = drawings.of_history(steps, ended=True)

    assert [part.width >= drawings.NARROWEST for part in drawn.segments] == [True, True, True]
    assert round(sum(part.width for part in drawn.segments)) == drawings.WIDTH


def test_tries_and_acts_of_people_are_marked_where_they_happened() -> None:
    steps = (
        step(0, JobState.DOWNLOADING, Event.SUCCEED),
        step(50, JobState.DOWNLOADING, None, kind=FailureKind.TRANSIENT, message="answered 503"),
        step(100, JobState.FAILED, Event.FAIL, by="ann", message="too slow", via=Interface.WEB),
    )
    drawn = drawings.of_history(steps, ended=True)

    (met,), (act,) = drawn.tries, drawn.people
    assert met.label == "try met: answered 503"
    assert 400 < met.x < 500
    assert act.label == "fail by ann: too slow"
    assert act.x > 990


def test_clocks_of_two_workers_that_disagree_draw_no_negative_width() -> None:
    steps = (
        step(10, JobState.PENDING, None),
        step(5, JobState.ESTIMATING, Event.ACQUIRE),
        step(20, JobState.COMPLETED, Event.SUCCEED),
    )
    drawn = drawings.of_history(steps, ended=True)

    assert min(part.width for part in drawn.segments) >= drawings.NARROWEST


def test_counts_are_drawn_in_the_order_of_the_states_and_spoken_as_text() -> None:
    drawn = drawings.of_counts({JobState.FAILED: 1, JobState.PENDING: 3})

    assert [(part.state, part.width) for part in drawn.segments] == [("pending", 750), ("failed", 250)]
    assert drawn.label == "3 pending, 1 failed"
    assert drawings.of_counts({}).label == "no jobs"
