"""The operator of a chaos run goes through the acts one by one, whatever an act does."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Event

import pytest

from operations.site import Site
from pipeline.settings import Settings
from tests.servers.http_source import HttpSource
from tools.chaos import hostile
from tools.chaos.acts import Acts
from tools.chaos.operator import OperatorThread
from tools.chaos.operator_verbs import Act
from tools.chaos.problem import Category
from zkstate import paths
from zkstate.connection.session import Session


def everything(session: Session, target: int) -> list[str]:
    return ["everything"]


@pytest.fixture
def operator(session: Session, settings: Settings) -> Iterator[OperatorThread]:
    thread = OperatorThread(settings, lambda _: None)
    thread.start()
    yield thread
    thread.stop()


def test_an_error_without_a_type_is_a_problem_of_the_run_and_the_next_act_is_done(
    operator: OperatorThread,
) -> None:
    done = Event()

    def fail(site: Site, names: list[str], acts: Acts) -> str:
        raise KeyError("a mistake in a verb")

    def finish(site: Site, names: list[str], acts: Acts) -> str:
        done.set()
        return "done"

    operator.ask(Act("broken", everything, fail))
    operator.ask(Act("next", everything, finish))

    assert done.wait(30)
    (problem,) = operator.acts.problems
    assert problem.sort is Category.ILLEGAL
    assert "a mistake in a verb" in problem.text


def test_the_operator_is_not_paused_within_an_act(operator: OperatorThread) -> None:
    began, end, later = Event(), Event(), Event()

    def work(site: Site, names: list[str], acts: Acts) -> str:
        began.set()
        end.wait(30)
        return "done"

    def finish(site: Site, names: list[str], acts: Acts) -> str:
        later.set()
        return "done"

    operator.ask(Act("long", everything, work))
    assert began.wait(30)

    assert not operator.pause()
    end.set()
    while not operator.idle:
        assert not operator.paused.is_set()
    while not operator.pause():
        pass
    operator.ask(Act("next", everything, finish))

    assert not later.wait(1)
    operator.paused.clear()
    assert later.wait(30)


@pytest.mark.parametrize("changes", [{}, {"local_id": ()}])
def test_an_oversized_deposit_is_refused_and_if_it_is_accepted_that_is_a_problem_of_the_run(
    operator: OperatorThread, session: Session, changes: dict[str, object]
) -> None:
    with HttpSource() as source:
        bad = hostile.oversized(source, 0, "too large")
    submission = bad.submission.model_copy(update={"profile_name": "demo", **changes})

    operator.ask(hostile.submitting(replace(bad, submission=submission)))
    done = Event()
    operator.ask(Act("next", everything, lambda *_: done.set()))
    assert done.wait(30)

    expected = session.children(paths.BATCHES)
    assert [problem.about for problem in operator.acts.problems] == expected
    assert len(expected) == (1 if changes else 0)
