"""The health of the fleet: what `arkline status` knows of servers, workers and waiting jobs."""

import pytest

from operations import workers
from operations.facts import Reason
from operations.health import Health, Problem
from operations.overview import overview
from pipeline.errors import Action, Remedy
from pipeline.machine import Queue
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.support import planting
from tests.support.fleet import fleet
from tests.support.operators import ann
from tests.support.waits import RETRY
from zkstate import holds, record
from zkstate.holds import Hold
from zkstate.session import Session

AWAY = {"broker_url": "redis://127.0.0.1:1/0"}
"""A port where nobody listens."""


def test_the_overview_names_what_stops_the_queue(session: Session, settings: Settings) -> None:
    planting.split_batch(session, 2)
    holds.place(session, Hold(by="ann", reason="database is moved"))
    holds.place(session, Hold(by="bob"), "demo")

    view = overview(session, settings)

    assert view.jobs[JobState.PENDING] == 2
    assert view.paused is not None
    assert view.paused.by == "ann"
    assert view.held_collections["demo"].by == "bob"
    assert view.health.beat == ""
    assert view.health.waiting[Reason.QUEUE_PAUSED] == 2
    assert [row.total for row in view.batches] == [2]


def test_a_fleet_without_workers_or_with_redis_away_is_stopped(session: Session, settings: Settings) -> None:
    planting.one_job(session)

    no_worker = overview(session, settings).health
    no_redis = overview(session, settings.model_copy(update=AWAY)).health

    assert no_worker.status is Health.STOPPED
    assert {problem.waits_for for problem in no_worker.problems} == {
        "",
        "control",
        "split",
        "io",
        "download",
        "process",
    }
    assert (no_redis.status, no_redis.redis_answers) == (Health.STOPPED, False)
    assert [problem.reason for problem in no_redis.problems] == [Reason.BROKER_UNREACHABLE]


def test_a_fleet_whose_jobs_are_retried_names_the_fault_and_the_next_try(
    session: Session, settings: Settings
) -> None:
    for _ in range(2):
        job = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))
        message = "https://x.edu/a: the source answered 503"
        record.hand_back(session, job, "worker", message=message, delay=90, waits_for=RETRY)

    health = overview(session, settings).health

    (fault,) = health.faults
    assert (fault.service, fault.jobs, fault.message) == ("source", 2, message)
    assert health.next_try == fault.next_try
    assert health.waiting == {Reason.BETWEEN_TRIES: 2}
    assert Problem(reason=Reason.BETWEEN_TRIES, waits_for="source") in health.problems


@pytest.mark.e2e
def test_a_fleet_is_healthy_until_its_workers_are_drained(session: Session, settings: Settings) -> None:
    with fleet(settings) as running:
        running.worker("w1", concurrency=2)
        running.beat()
        healthy = overview(session, settings).health
        (name,) = workers.taking(settings)
        workers.drain(ann(session, settings), name)
        drained = overview(session, settings).health

    assert (healthy.status, healthy.problems) == (Health.OK, ())
    assert healthy.beat.startswith("beat ")
    assert [(queue.workers, queue.processes) for queue in healthy.queues] == [(1, 2)] * len(Queue)
    assert (drained.status, drained.drained) == (Health.STOPPED, (name,))
    assert Remedy(Action.UNDO_DRAIN, name) in drained.remedies
