"""The sweep gives a new ticket to every abandoned record, once, and to no other record."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Event, JobState
from tests.support import planting
from tests.support.clocks import since_change
from tests.support.polling import eventually
from tests.support.waits import HOST, RETRY
from zkstate import paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import exclusive, single_flight
from zkstate.connection.session import Session, connect
from zkstate.errors import Stale
from zkstate.fleet import scheduled
from zkstate.fleet.scheduled import FRONT, PAGE, Sweep
from zkstate.queue import queue, recovery
from zkstate.queue.recovery import Recovered
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

NONE: frozenset[tuple[str, int]] = frozenset()
MOST = 3


def later(session: Session, seconds: float = 60) -> ServerClock:
    """The server's clock, read so many seconds ago."""
    with single_flight(session, "clock") as clock:
        assert clock is not None
        return ServerClock(clock.read_ms, time.monotonic() - seconds)


def sweep_after(session: Session, jid: str, seconds: float) -> list[Ticket]:
    """What a sweep gives out so many seconds after the last change of the job."""
    clock = since_change(session, paths.job_status(jid), seconds)
    return list(recovery.sweep_jobs(session, NONE, clock, MOST).tickets)


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
    record.hand_back(session, held, "test", message="503", delay=100, waits_for=RETRY)

    assert sweep(session, seconds=90) == []
    assert len(sweep(session, seconds=110)) == 1


def test_jobs_that_wait_for_a_place_for_space_or_for_a_person_get_no_ticket(session: Session) -> None:
    for state in (JobState.PENDING, JobState.PROVISIONING, JobState.HELD, JobState.FAILED):
        planting.job_in(session, state)

    assert sweep(session) == []


def test_a_pending_job_whose_ticket_was_lost_gets_another_one(session: Session) -> None:
    job = planting.one_job(session)
    (first,) = queue.feed(session, in_flight=5).tickets

    (second,) = sweep(session)

    assert second.id == first.id == job.jid
    assert second.epoch > first.epoch


def test_a_worker_that_took_its_message_just_before_a_sweep_has_time_to_take_the_lock(
    session: Session, settings: Settings
) -> None:
    job = planting.one_job(session)
    (ticket,) = queue.feed(session, in_flight=5).tickets
    with connect(settings) as of_worker, single_flight(session, "sweep") as clock:
        assert clock is not None
        waited = ServerClock(clock.read_ms + 60_000, clock.at)  # the message was in Redis for a minute
        opening = threading.Timer(0.3, jobs.acquire, (of_worker, ticket, "a new process"))
        opening.start()
        found = recovery.sweep_jobs(session, NONE, waited, MOST)
        opening.join()

    assert found == Recovered()
    assert jobs.load(session, job.jid).status.redispatches == 0


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


def test_a_job_that_waits_after_it_lost_its_worker_too_often_gets_a_ticket_and_one_more_loss_is_the_last(
    session: Session,
) -> None:
    planting.job_in(session, JobState.DOWNLOADING)
    for _ in range(MOST):
        (ticket,) = sweep(session, seconds=1000)
    held = jobs.acquire(session, ticket, "test")
    record.hand_back(session, held, "test", message="busy", delay=4, waits_for=HOST)

    waited = recovery.sweep_jobs(session, NONE, later(session, 1000), MOST)
    lost = recovery.sweep_jobs(session, NONE, later(session, 1000), MOST)

    assert ([ticket.id for ticket in waited.tickets], waited.exhausted) == ([held.jid], ())
    assert (lost.tickets, lost.exhausted) == ((), (held.jid,))


def sweep_batches(session: Session) -> Recovered:
    return recovery.sweep_batches(session, NONE, later(session), "sweep", MOST)


@pytest.mark.parametrize("state", BATCH.working())
def test_a_batch_that_lost_its_worker_too_often_gets_no_other(session: Session, state: BatchState) -> None:
    batch = planting.batch_in(session, state)
    if state is BatchState.PROCESSING:
        batch = planting.acquired_batch(session)
        session.zk.delete(paths.batch_lock(batch.bid))
    for _ in range(MOST):
        assert batch.bid in [ticket.id for ticket in sweep_batches(session).tickets]

    last = sweep_batches(session)

    assert (batch.bid in [ticket.id for ticket in last.tickets], last.exhausted) == (False, (batch.bid,))


def test_a_submission_whose_message_was_lost_gets_a_ticket(session: Session) -> None:
    bid = batches.submit(session, planting.submission())

    (ticket,) = sweep_batches(session).tickets

    assert (ticket.id, ticket.state) == (bid, "pending")


def test_a_batch_whose_last_job_ended_unnoticed_goes_to_reporting(session: Session) -> None:
    bid, (jid,) = planting.split_batch(session, 1)
    assert sweep_batches(session) == Recovered()
    planting.apply_event(session, jobs.load(session, jid), Event.FAIL)

    (ticket,) = sweep_batches(session).tickets

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
        waiting.result(timeout=30)

    assert order == ["first", "second"]
    assert session.children("/locks/storage") == []


def test_a_held_job_that_is_released_is_fed_again(session: Session) -> None:
    held = planting.job_in(session, JobState.HELD)
    jobs.move(session, held, JobMove(Event.RELEASE, "operator", lock=Lock.FREE))

    assert [ticket.id for ticket in queue.feed(session, in_flight=5).tickets] == [held.jid]
    assert session.exists(paths.job_lock(held.jid)) is None


def test_a_damaged_job_stops_neither_feeding_nor_the_sweep(session: Session) -> None:
    damaged, sound = planting.one_job(session), planting.one_job(session)
    lost = planting.job_in(session, JobState.RECORDING)
    data, _ = session.get(paths.job_status(damaged.jid))
    session.zk.set(paths.job_status(damaged.jid), b"{broken")

    assert [ticket.id for ticket in queue.feed(session, in_flight=5).tickets] == [sound.jid]
    assert {ticket.id for ticket in sweep(session)} == {sound.jid, lost.jid}

    session.zk.set(paths.job_status(damaged.jid), data)


def test_a_job_that_keeps_losing_its_worker_is_dispatched_less_and_less_often(session: Session) -> None:
    job = planting.job_in(session, JobState.PROCESSING)
    assert len(sweep_after(session, job.jid, 4)) == 1

    assert sweep_after(session, job.jid, 4) == []
    assert len(sweep_after(session, job.jid, 7)) == 1


def test_a_job_that_is_handed_back_waits_its_delay_however_often_it_lost_its_worker(session: Session) -> None:
    planting.job_in(session, JobState.DOWNLOADING)
    for _ in range(MOST - 1):
        (ticket,) = sweep(session, seconds=1000)
    held = jobs.acquire(session, ticket, "test")
    record.hand_back(session, held, "test", message="no space", delay=4, waits_for=RETRY)

    assert sweep_after(session, held.jid, 3) == []
    assert len(sweep_after(session, held.jid, 5)) == 1


def test_an_orderly_stop_never_counts_as_a_lost_worker(session: Session) -> None:
    job = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    for _ in range(10 * MOST):
        record.hand_back(session, job, "test", message="the worker is stopping: another worker takes over")
        (ticket,) = sweep(session, seconds=4)
        job = jobs.acquire(session, ticket, "test")

    assert job.status.redispatches == 0
    record.hand_back(session, job, "test")


def test_a_worker_that_dies_after_an_orderly_stop_of_another_is_counted(session: Session) -> None:
    job = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    record.hand_back(session, job, "test")
    (ticket,) = sweep(session)
    assert sweep(session, frozenset({(ticket.id, ticket.epoch)})) == []

    sweep(session)

    assert jobs.load(session, job.jid).status.redispatches == 1


def passes(session: Session, count: int, shift_ms: int = 0) -> list[Ticket]:
    """The tickets of so many sweeps, whose server's clock is wrong by `shift_ms`."""
    tickets: list[Ticket] = []
    for _ in range(count):
        with single_flight(session, "sweep") as clock:
            assert clock is not None
            wrong = dataclasses.replace(clock, read_ms=clock.read_ms + shift_ms)
            current = Sweep(session, wrong)
            tickets += recovery.sweep_jobs(session, NONE, current.clock, MOST, current.page).tickets
            current.save()
        threading.Event().wait(0.5)
    return tickets


def test_a_server_whose_clock_is_set_back_by_half_an_hour_delays_no_recovery(session: Session) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)
    passes(session, 2)

    tickets = passes(session, int(2 * recovery.GRACE / 0.5), shift_ms=-1_800_000)

    assert job.jid in {ticket.id for ticket in tickets}


def test_a_server_whose_clock_is_set_forward_by_half_an_hour_hastens_no_retry(session: Session) -> None:
    passes(session, 1)
    held = planting.acquire(session, planting.job_in(session, JobState.NOTIFY))
    record.hand_back(session, held, "test", message="503", delay=60, waits_for=RETRY)
    passes(session, 2)

    assert passes(session, 3, shift_ms=1_800_000) == []


def test_the_sweep_reads_every_page_of_a_queue_in_turn(session: Session) -> None:
    names = [f"05-jid{number:010}" for number in range(5_000)]
    reads: list[str] = []
    for _ in range(7):
        with single_flight(session, "sweep") as clock:
            assert clock is not None
            current = Sweep(session, clock)
            page = current.page("pending", names)
            assert len(page) <= FRONT + PAGE
            assert list(page[:FRONT]) == names[:FRONT]
            reads += page
            current.save()

    assert set(reads) == set(names)


def test_a_late_sweep_is_late_for_everybody_who_asks_at_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled, "SWEEP_LIMIT", 0.2)
    eventually(lambda: scheduled.last_sweep(session))

    with ThreadPoolExecutor(8) as people:
        answers = list(people.map(lambda _: scheduled.last_sweep(session), range(64)))

    assert 0 not in answers
