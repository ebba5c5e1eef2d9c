"""Requests of a feed: jobs that end do not feed others themselves, and one feed serves many of them."""

from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from pipeline.states import JobState
from tasks import after_move
from tasks.after_move import ENOUGH, request_feed, take_requests
from tasks.app import make_context
from tasks.broker import read_queues, waiting_messages
from tasks.worker_context import WorkerContext
from tests.support import planting
from zkstate.connection.session import Session
from zkstate.record import jobs


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    yield opened
    opened.drop_session()


def feed(context: WorkerContext) -> None:
    context.app.tasks["beat.feed"]()


def test_many_requests_send_one_message(settings: Settings, context: WorkerContext) -> None:
    assert all(request_feed(context.app, settings) for _ in range(5))

    assert waiting_messages(settings, ["control"]) == 1


def test_no_feed_is_requested_while_enough_jobs_wait_for_a_worker(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    planting.split_batch(session, settings.in_flight)  # more than a collection's share of the places
    feed(context)

    assert request_feed(context.app, settings)

    assert waiting_messages(settings, ["control"]) == 0


def test_no_feed_is_requested_right_after_one_that_left_no_pending_job_without_a_ticket(
    session: Session, settings: Settings, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(after_move, "COMPLETE", 60)  # a second may be over before the request
    planting.split_batch(session, 2)
    feed(context)

    assert request_feed(context.app, settings)

    assert waiting_messages(settings, ["control"]) == 0


def test_a_feed_is_requested_after_one_that_found_places_for_some_jobs_only(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    planting.split_batch(session, 2)
    feed(context)
    planting.split_batch(session, settings.in_flight)
    few = settings.model_copy(update={"in_flight": 5})  # places for two more

    after_move.feed(context.app, session, few)
    assert request_feed(context.app, settings)

    assert waiting_messages(settings, ["control"]) == 1


def test_scheduled_feeds_also_run_while_enough_jobs_wait_for_a_worker(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    planting.split_batch(session, settings.in_flight // ENOUGH)
    feed(context)
    _, later = planting.split_batch(session, 1)

    feed(context)

    # one of them may be more urgent than all that wait
    assert jobs.load(session, later[0]).status.dispatched_at is not None


def test_a_feed_is_requested_however_few_places_there_are(settings: Settings, context: WorkerContext) -> None:
    assert request_feed(context.app, settings.model_copy(update={"in_flight": 1}))

    assert waiting_messages(settings, ["control"]) == 1


def test_a_request_after_a_feed_began_is_a_new_one(settings: Settings, context: WorkerContext) -> None:
    request_feed(context.app, settings)
    assert take_requests(settings)

    request_feed(context.app, settings)

    assert waiting_messages(settings, ["control"]) == 2
    assert take_requests(settings)
    assert not take_requests(settings)


def test_a_feed_dispatches_the_pending_jobs_each_with_a_ticket_of_its_own(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    _, jids = planting.split_batch(session, 5)

    feed(context)

    tickets = read_queues(settings).tickets
    assert {jid for jid, _ in tickets} == set(jids)
    for jid, epoch in tickets:
        status = jobs.load(session, jid).status
        assert (status.status, status.epoch) == (JobState.PENDING, epoch)
        assert status.dispatched_at is not None


def test_jobs_are_fed_one_by_one_if_one_of_them_is_being_worked_on(
    session: Session, settings: Settings, context: WorkerContext
) -> None:
    _, jids = planting.split_batch(session, 5)
    held = planting.acquire(session, jobs.load(session, jids[2]))

    feed(context)

    assert {jid for jid, _ in read_queues(settings).tickets} == set(jids) - {held.jid}
