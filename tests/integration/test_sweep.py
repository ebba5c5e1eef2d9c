"""The sweep gives a new ticket to every abandoned record, once, and to no other record."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.support import planting
from zkstate import batches, jobs, paths, queue, record, recovery
from zkstate.errors import Stale
from zkstate.jobs import JobMove
from zkstate.locks import ServerClock, exclusive, single_flight
from zkstate.record import HandBack, Lock
from zkstate.session import Session, connect

NONE: frozenset[tuple[str, int]] = frozenset()
MOST = 3


def later(session: Session, seconds: float = 60) -> ServerClock:
    """The server's clock as it will be in a while."""
    with single_flight(session, "clock") as clock:
        assert clock is not None
        return ServerClock(clock.read_ms + int(seconds * 1000), time.monotonic())


def sweep(session: Session, live: frozenset[tuple[str, int]] = NONE, seconds: float = 60) -> list[Ticket]:
    return list(recovery.sweep_jobs(session, live, later(session, seconds), MOST).tickets)


def test_a_job_without_lock_and_message_gets_a_ticket_that_voids_the_old_one(session: Session) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)

    (ticket,) = sweep(session)

    assert (ticket.id, ticket.state) == (job.jid, "downloading")
    with pytest.raises(Stale):
        planting.acquire(session, job)
    record.hand_back(session, jobs.acquire(session, ticket, "test"), "test")


def test_a_job_whose_message_is_in_the_broker_gets_no_ticket(session: Session) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)

    assert sweep(session, frozenset({(job.jid, job.status.epoch)})) == []
    assert [t.id for t in sweep(session, frozenset({(job.jid, job.status.epoch - 1)}))] == [job.jid]


def test_a_job_that_a_worker_holds_gets_no_ticket(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.PROCESSING))

    assert sweep(session) == []

    record.hand_back(session, held, "test")


def test_a_job_that_was_just_dispatched_gets_no_ticket(session: Session) -> None:
    planting.job_in(session, JobState.RECORDING)

    assert sweep(session, seconds=0) == []


def test_a_delay_is_measured_by_the_servers_clock(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.NOTIFY))
    record.hand_back(session, held, "test", message="503", delay=100, why=HandBack.TRIED)

    assert sweep(session, seconds=90) == []
    assert len(sweep(session, seconds=110)) == 1


def test_jobs_that_wait_for_a_place_for_space_or_for_a_person_get_no_ticket(session: Session) -> None:
    for state in (JobState.PENDING, JobState.PROVISIONING, JobState.HELD, JobState.FAILED):
        planting.job_in(session, state)

    assert sweep(session) == []


def test_a_pending_job_whose_ticket_was_lost_gets_another_one(session: Session) -> None:
    job = planting.one_job(session)
    (first,) = queue.feed(session, in_flight=5)

    (second,) = sweep(session)

    assert second.id == first.id == job.jid
    assert second.epoch > first.epoch


def test_two_sweeps_at_once_send_each_job_once(settings: Settings, session: Session) -> None:
    planted = [planting.job_in(session, JobState.RECORDING).jid for _ in range(20)]
    threading.Event().wait(recovery.GRACE + 0.1)  # what is tested is that this time begins anew
    clock = later(session, seconds=0)
    with connect(settings) as other, ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda s: recovery.sweep_jobs(s, NONE, clock, MOST).tickets, (session, other))
        tickets = [ticket for part in found for ticket in part]

    assert sorted(ticket.id for ticket in tickets) == sorted(planted)


def test_a_job_that_loses_its_worker_too_often_gets_no_further_ticket(session: Session) -> None:
    job = planting.job_in(session, JobState.PROCESSING)
    for _ in range(MOST):
        assert [ticket.id for ticket in sweep(session)] == [job.jid]

    last = recovery.sweep_jobs(session, NONE, later(session), MOST)

    assert last.tickets == ()
    assert last.exhausted == (job.jid,)


def test_a_submission_whose_message_was_lost_gets_a_ticket(session: Session) -> None:
    bid = batches.submit(session, planting.submission())

    (ticket,) = recovery.sweep_batches(session, NONE, later(session), "sweep")

    assert (ticket.id, ticket.state) == (bid, "pending")


def test_a_batch_whose_last_job_ended_unnoticed_goes_to_reporting(session: Session) -> None:
    bid, (jid,) = planting.split_batch(session, 1)
    assert recovery.sweep_batches(session, NONE, later(session), "sweep") == ()
    planting.apply_event(session, jobs.load(session, jid), Event.FAIL)

    (ticket,) = recovery.sweep_batches(session, NONE, later(session), "sweep")

    assert ticket.state == BatchState.REPORTING
    assert batches.load(session, bid).status.status is BatchState.REPORTING


def test_one_process_of_the_fleet_runs_periodic_work_at_a_time(settings: Settings, session: Session) -> None:
    with connect(settings) as other, single_flight(session, "sweep") as mine:
        assert mine is not None
        with single_flight(other, "sweep") as theirs:
            assert theirs is None


def test_an_exclusive_lock_is_passed_on_when_its_holder_leaves(settings: Settings, session: Session) -> None:
    order: list[str] = []
    with connect(settings) as other, ThreadPoolExecutor(1) as pool:
        with exclusive(session, "storage", "ark:/1/x", UNATTENDED):

            def second() -> None:
                with exclusive(other, "storage", "ark:/1/x", UNATTENDED):
                    order.append("second")

            waiting = pool.submit(second)
            order.append("first")
        waiting.result(timeout=10)

    assert order == ["first", "second"]
    assert session.children("/locks/storage") == []


def test_a_held_job_that_is_released_is_fed_again(session: Session) -> None:
    held = planting.job_in(session, JobState.HELD)
    jobs.move(session, held, JobMove(Event.RELEASE, "operator", lock=Lock.FREE))

    assert [ticket.id for ticket in queue.feed(session, in_flight=5)] == [held.jid]
    assert session.exists(paths.job_lock(held.jid)) is None


def test_a_damaged_job_stops_neither_feeding_nor_the_sweep(session: Session) -> None:
    damaged, sound = planting.one_job(session), planting.one_job(session)
    lost = planting.job_in(session, JobState.RECORDING)
    data, _ = session.get(paths.job_status(damaged.jid))
    session.zk.set(paths.job_status(damaged.jid), b"{broken")

    assert [ticket.id for ticket in queue.feed(session, in_flight=5)] == [sound.jid]
    assert {ticket.id for ticket in sweep(session)} == {sound.jid, lost.jid}

    session.zk.set(paths.job_status(damaged.jid), data)


def test_a_job_that_keeps_losing_its_worker_is_dispatched_less_and_less_often(session: Session) -> None:
    planting.job_in(session, JobState.PROCESSING)
    assert len(sweep(session, seconds=4)) == 1

    assert sweep(session, seconds=4) == []
    assert len(sweep(session, seconds=7)) == 1


def test_a_job_that_is_handed_back_waits_its_delay_however_often_it_lost_its_worker(session: Session) -> None:
    planting.job_in(session, JobState.DOWNLOADING)
    for _ in range(MOST - 1):
        (ticket,) = sweep(session, seconds=1000)
    held = jobs.acquire(session, ticket, "test")
    record.hand_back(session, held, "test", message="no space", delay=4, why=HandBack.TRIED)

    assert sweep(session, seconds=3) == []
    assert len(sweep(session, seconds=5)) == 1
