"""The health of the fleet: what `arkline status` knows of servers, workers and waiting jobs."""

from pathlib import Path

import pytest

from entrypoints.render import explanation as words
from entrypoints.render.fleet_status import problem_text
from operations.doctor import servers
from operations.fleet import fleet
from operations.fleet.health import Health, overview
from operations.fleet.working_storage import space_view
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.deployment import Deployment
from pipeline.errors import Action, Remedy, ServiceUnreachable
from pipeline.machine import Queue
from pipeline.outcome import WaitKind, WaitsFor
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tasks.beat_leader import OnceLogged
from tasks.broker import configured
from tasks.redis_keys import client
from tasks.stores import claim_key, note_ours
from tests.servers import redis as redis_servers
from tests.support import planting
from tests.support.fleet import fleet as running_fleet
from tests.support.log_entries import log_entries
from tests.support.operators import ANN
from tests.support.waits import RETRY
from zkstate.care.deployment import RecordDeployment
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import record

AWAY = {"broker_url": "redis://127.0.0.1:1/0"}
"""A port where nobody listens."""


def test_the_overview_names_what_stops_the_queue(session: Session, settings: Settings) -> None:
    planting.split_batch(session, 2)
    holds.place(session, Hold(by="ann", reason="database is moved"))
    holds.place(session, Hold(by="bob"), "demo")

    view = overview(Site(settings, session), ANN)

    assert view.jobs[JobState.PENDING] == 2
    assert view.paused is not None
    assert view.paused.by == "ann"
    assert view.held_collections["demo"].by == "bob"
    assert view.health.beat == ""
    assert view.health.waiting[Reason.QUEUE_PAUSED] == 2
    assert [row.total for row in view.batches] == [2]


@pytest.mark.parametrize(
    ("on_hold", "expected"),
    [
        ((), {Reason.HOLD_ENDED: 2}),
        (("other",), {Reason.HOLD_ENDED: 2}),
        (("demo",), {Reason.COLLECTION_ON_HOLD: 2}),
    ],
)
def test_jobs_are_counted_as_held_by_a_collection_only_while_it_is_on_hold(
    session: Session, settings: Settings, on_hold: tuple[str, ...], expected: dict[Reason, int]
) -> None:
    for _ in range(2):
        planting.job_in(session, JobState.HELD)
    for name in on_hold:
        holds.place(session, Hold(by="bob"), name)

    assert overview(Site(settings, session), ANN).health.waiting == expected


def test_a_fleet_without_workers_or_with_redis_away_is_stopped(session: Session, settings: Settings) -> None:
    planting.one_job(session)

    no_worker = overview(Site(settings, session), ANN).health
    no_redis = overview(Site(settings.model_copy(update=AWAY), session), ANN).health

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


def test_a_redis_that_refuses_writes_is_named_with_its_own_words(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    job = planting.one_job(session)
    with redis_servers.running(tmp_path / "redis") as own:
        replica = settings.model_copy(update={"broker_url": own.url})
        client(replica).config_set("maxmemory", 1)
        full, _ = overview(Site(replica, session), ANN).health, client(replica).config_set("maxmemory", 0)
        client(replica).replicaof("127.0.0.1", "1")
        read_only = overview(Site(replica, session), ANN).health
        cause = why(Site(replica, session), ANN, job.bid)

    assert [problem.reason for problem in full.problems] == [Reason.BROKER_REFUSES]
    assert [problem.reason for problem in read_only.problems] == [Reason.BROKER_REFUSES]
    assert (full.status, full.redis_answers) == (Health.STOPPED, True)
    assert "maxmemory" in full.problems[0].message
    assert "read only replica" in read_only.problems[0].message
    assert [remedy.action for remedy in full.remedies] == [Action.FIX_BROKER]
    assert "read only replica" in words.paragraph(cause)


def test_a_redis_that_refuses_the_password_answers_and_is_not_to_be_started(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    with redis_servers.running(tmp_path / "redis") as own:
        wrong = settings.model_copy(update={"broker_url": own.url})
        client(wrong).config_set("requirepass", "another")
        client(wrong).connection_pool.disconnect()
        health = overview(Site(wrong, session), ANN).health
        with pytest.raises(ServiceUnreachable, match="refuses: ") as refused:
            list(servers.broker(wrong))

    assert (health.status, health.redis_answers) == (Health.STOPPED, True)
    assert [problem.reason for problem in health.problems] == [Reason.BROKER_REFUSES]
    assert [remedy.action for remedy in health.remedies] == [Action.FIX_BROKER]
    assert [remedy.action for remedy in refused.value.remedies] == [Action.FIX_BROKER]


THEIRS = "b" * 32
"""The id of another deployment."""


def test_a_prefix_that_the_record_claims_is_no_problem_whatever_redis_says(
    session: Session, settings: Settings
) -> None:
    RecordDeployment(session).write_deployment(Deployment(id="a" * 32))
    note_ours(settings, session)
    client(settings).set(claim_key(settings), THEIRS)

    assert Reason.BROKER_FOREIGN not in {
        one.reason for one in overview(Site(settings, session), ANN).health.problems
    }


def test_a_prefix_of_another_deployment_is_named_and_its_workers_are_not_counted(
    session: Session, settings: Settings
) -> None:
    bid = planting.one_job(session).bid
    RecordDeployment(session).write_deployment(Deployment(id="a" * 32))
    client(settings).set(claim_key(settings), THEIRS)

    health = overview(Site(settings, session), ANN).health
    cause = why(Site(settings, session), ANN, bid)

    (problem,) = [problem for problem in health.problems if problem.stops_all]
    assert problem.reason is Reason.BROKER_FOREIGN
    assert (health.status, {queue.workers for queue in health.queues}) == (Health.STOPPED, {0})
    assert f"belongs to deployment {THEIRS}, not to {'a' * 32}: set ARKLINE_BROKER_PREFIX" in problem.message
    assert [remedy.action for remedy in health.remedies] == [Action.CHANGE_PREFIX]
    assert f"belongs to deployment {THEIRS}" in words.text(cause)
    assert "No action is needed" not in words.text(cause)


def test_a_fleet_whose_jobs_are_retried_names_the_fault_and_the_next_try(
    session: Session, settings: Settings
) -> None:
    for _ in range(2):
        job = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))
        message = "https://x.edu/a: the source answered 503"
        record.hand_back(session, job, "worker", message=message, delay=90, waits_for=RETRY)

    health = overview(Site(settings, session), ANN).health

    (fault,) = health.faults
    assert (fault.service, fault.jobs, fault.message) == ("source", 2, message)
    assert health.next_try == fault.next_try
    assert health.waiting == {Reason.BETWEEN_TRIES: 2}
    shown = {problem_text(problem): problem.remedies for problem in health.problems}
    assert shown[f"jobs wait for a retry: {message}"] == ()


def test_a_beat_logs_once_that_redis_refuses_writes(settings: Settings, tmp_path: Path) -> None:
    with redis_servers.running(tmp_path / "redis") as own, log_entries() as logged:
        full = settings.model_copy(update={"broker_url": own.url})
        scheduler = OnceLogged(configured(full))
        for limit in (1, 0):
            client(full).config_set("maxmemory", limit)
            for entry in list(scheduler.schedule.values()) * 2:
                scheduler.apply_entry(entry)

    refused, again = logged
    assert (refused["event"], again["event"]) == (
        "scheduled work cannot be sent",
        "scheduled work is sent again",
    )
    assert "maxmemory" in refused["error"]


def test_jobs_that_failed_or_do_not_fit_are_problems_with_remedies(
    session: Session, settings: Settings
) -> None:
    waiting = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    record.hand_back(session, waiting, "test", message="2.0 GB do not fit into working storage")
    planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    failed = planting.job_in(session, JobState.DOWNLOADING)
    planting.apply_event(session, failed, Event.FAIL, FailureKind.CONTENT)

    health = overview(Site(settings, session), ANN).health

    shown = {problem_text(problem): problem.remedies for problem in health.problems}
    assert shown["1 job failed"] == (Remedy(Action.SHOW_FAILURES),)
    assert shown["1 job waits for working storage"] == (Remedy(Action.ADD_SPACE),)
    assert health.waiting == {Reason.BEING_WORKED_ON: 1, Reason.WAITING_FOR_SPACE: 1}
    assert {Remedy(Action.ADD_SPACE), Remedy(Action.SHOW_FAILURES)} <= set(health.remedies)


def test_jobs_in_provisioning_are_said_to_wait_for_working_storage_only_if_they_do(
    session: Session, settings: Settings
) -> None:
    planting.job_in(session, JobState.PROVISIONING)
    retried = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    again = WaitsFor(kind=WaitKind.RETRY)
    record.hand_back(session, retried, "test", message="a fault", delay=60, waits_for=again)

    shown = overview(Site(settings, session), ANN)

    assert shown.health.waiting == {Reason.BETWEEN_TRIES: 1, Reason.BEING_DISPATCHED: 1}
    assert shown.space.waiting == 0
    assert space_view(Site(settings, session), ANN).waiting == 0


@pytest.mark.e2e
def test_a_fleet_is_healthy_until_its_workers_are_drained(session: Session, settings: Settings) -> None:
    with running_fleet(settings) as running:
        running.worker("w1", concurrency=2)
        running.beat()
        healthy = overview(Site(settings, session), ANN).health
        (name,) = fleet.taking(settings)
        fleet.drain(Site(settings, session), ANN, name)
        drained = overview(Site(settings, session), ANN).health

    assert (healthy.status, healthy.problems) == (Health.OK, ())
    assert healthy.beat.startswith("beat ")
    assert [(queue.workers, queue.processes) for queue in healthy.queues] == [(1, 2)] * len(Queue)
    assert (drained.status, drained.drained) == (Health.STOPPED, (name,))
    assert Remedy(Action.UNDO_DRAIN, name) in drained.remedies
