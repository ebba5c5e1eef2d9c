"""The callback of a failed job is tried a finite number of times, counted in ZooKeeper."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from operations.site import Site
from operations.why.why import why
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState, Queue, Room
from pipeline.steps.context import Clients, open_clients
from tasks import redis_keys
from tasks.app import make_context
from tasks.broker import waiting_messages
from tasks.callback import deliver
from tasks.worker_context import CountedCallback
from tests.servers.receiver import Receiver
from tests.support import planting
from tests.support.operators import ANN
from tests.support.step_context import collection
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.fleet.outages import FIRST_PROBE
from zkstate.record import callbacks, deletion, jobs
from zkstate.record.callbacks import Owed
from zkstate.record.jobs import JobMove
from zkstate.record.journal import Stamp
from zkstate.record.record import Lock

UNAVAILABLE: list[tuple[int, dict[str, str]]] = [(503, {})] * 3
"""Answers to one try, which asks three times."""


@pytest.fixture
def clients(settings: Settings, tmp_path: Path, receiver: Receiver) -> Iterator[Clients]:
    given = settings.model_copy(update={"profiles": tmp_path / "profiles", "max_tries": 2, "backoff": 30})
    collection(given, callback_url=receiver.url())
    clients = replace(open_clients(given), callback=CountedCallback(given, pause=0.01))
    yield clients
    clients.inventory.database.close()


def failed(session: Session) -> Job:
    job = planting.job_in(session, JobState.PROCESSING)
    return planting.apply_event(session, job, Event.FAIL, FailureKind.SYSTEM)


def owed(session: Session, job: Job) -> Owed | None:
    return callbacks.owed(session, job.jid, job.status.epoch)


def present(session: Session, job: Job) -> Owed:
    found = owed(session, job)
    assert found is not None
    return found


def try_once(session: Session, clients: Clients, job: Job) -> None:
    deliver(session, clients, present(session, job), "worker", clock(session))


def clock(session: Session, *, ahead: float = 0) -> ServerClock:
    """The server's clock as of the newest change, so many seconds later."""
    newest = max(session.get(f"{paths.CALLBACKS}/{n}")[1].mtime for n in session.children(paths.CALLBACKS))
    return ServerClock(newest + int(ahead * 1000), time.monotonic())


def test_a_failure_callback_is_delivered_and_recorded(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)

    try_once(session, clients, job)

    assert len(receiver.received) == 1
    assert owed(session, job) is None
    noted = jobs.load(session, job.jid)
    assert noted.history[-1].message == "failure callback delivered to 127.0.0.1"
    assert why(Site(clients.settings, session), ANN, job.jid).failed_in == JobState.PROCESSING
    assert audit(session) == ()


def test_a_callback_waits_for_a_receiver_that_is_down_and_counts_no_try(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    receiver.answers += UNAVAILABLE

    try_once(session, clients, job)

    waiting = owed(session, job)
    assert waiting is not None
    assert (waiting.record.tries, waiting.record.delay) == (0, FIRST_PROBE)
    assert [known.outage.instance for known in outages.known(session).values()] == ["127.0.0.1"]
    assert len(receiver.received) == 3
    try_once(session, clients, job)
    assert len(receiver.received) == 3  # no probe is due

    (due,) = callbacks.due(session, clock(session, ahead=61))
    deliver(session, clients, due, "worker", clock(session, ahead=61))

    assert owed(session, job) is None
    assert all(known.outage.ended for known in outages.known(session).values())
    assert "delivered" in jobs.load(session, job.jid).history[-1].message


def test_a_callback_that_its_receiver_always_fails_at_is_given_up_and_holds_up_no_other(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job, other = failed(session), failed(session)
    receiver.answers += UNAVAILABLE
    try_once(session, clients, job)
    deliver(session, clients, present(session, other), "worker", clock(session, ahead=61))
    assert owed(session, other) is None  # the receiver works for others

    receiver.answers += UNAVAILABLE
    try_once(session, clients, job)

    again = present(session, job)
    assert (again.record.tries, again.record.delay) == (1, 30)
    assert again.record.message.endswith("answered 503")
    assert all(known.outage.ended for known in outages.known(session).values())

    receiver.answers += UNAVAILABLE
    try_once(session, clients, job)

    assert owed(session, job) is None
    assert "failure callback not delivered" in jobs.load(session, job.jid).history[-1].message
    assert all(known.outage.ended for known in outages.known(session).values())


def test_tries_to_deliver_are_counted_by_their_outcome(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    before = redis_keys.delivered(clients.settings, redis_keys.Counted.CALLBACKS)
    receiver.answers += [(404, {})]

    for _ in range(2):
        try_once(session, clients, failed(session))

    after = redis_keys.delivered(clients.settings, redis_keys.Counted.CALLBACKS)
    assert {outcome: after[outcome] - before[outcome] for outcome in after} == {"failed": 1, "delivered": 1}


def test_a_callback_that_its_receiver_refuses_is_given_up_and_the_history_says_so(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    receiver.answers += [(404, {})]

    try_once(session, clients, job)

    assert owed(session, job) is None
    last = jobs.load(session, job.jid).history[-1]
    assert last.message.startswith("failure callback not delivered: the callback http://")
    assert "404" in last.message


def test_a_callback_that_its_worker_never_made_is_dispatched_again(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    assert callbacks.due(session, clock(session)) == []
    (due,) = callbacks.due(session, clock(session, ahead=61))

    assert callbacks.claim(session, due)
    assert not callbacks.claim(session, due)
    assert callbacks.due(session, clock(session, ahead=59)) == []

    try_once(session, clients, job)
    assert len(receiver.received) == 1


def test_an_unreadable_callback_keeps_no_other_from_being_dispatched(
    session: Session, clients: Clients
) -> None:
    damaged, sound = failed(session), failed(session)
    session.zk.set(paths.owed_callback(damaged.jid, damaged.status.epoch), b"{")

    (due,) = callbacks.due(session, clock(session, ahead=61))

    assert due.jid == sound.jid


@pytest.mark.parametrize("event", [Event.RESUME, Event.DELETE])
def test_no_callback_is_made_for_a_failure_that_is_overcome(
    session: Session, clients: Clients, receiver: Receiver, event: Event
) -> None:
    job = failed(session)
    found = present(session, job)
    if event is Event.DELETE:
        deletion.delete_job(session, job, "operator")
    else:
        jobs.move(session, job, JobMove(event, "ann", lock=Lock.FREE))

    deliver(session, clients, found, "worker", clock(session))

    assert owed(session, job) is None
    assert receiver.received == []


def test_a_job_that_moves_during_its_callback_keeps_its_own_history(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    found = present(session, job)
    resumed = jobs.move(session, job, JobMove(Event.RESUME, "ann", lock=Lock.FREE))

    callbacks.settle(session, job, found, Stamp(by="worker"), "delivered")
    deliver(session, clients, present(session, job), "worker", clock(session))

    assert owed(session, job) is None
    assert receiver.received == []
    assert jobs.load(session, job.jid) == resumed


def test_the_outcome_of_a_delivery_is_recorded_though_the_failed_job_changed_meanwhile(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    found = present(session, job)
    with jobs.emptying(session, job.jid, "provisioning"):
        pass

    callbacks.settle(session, job, found, Stamp(by="worker"), "delivered")
    deliver(session, clients, present(session, job), "worker", clock(session))

    assert owed(session, job) is None
    assert "delivered" in jobs.load(session, job.jid).history[-1].message


def test_while_the_content_of_its_job_is_removed_a_delivery_is_not_recorded_and_stays_owed(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    job = failed(session)
    found = present(session, job)

    with jobs.emptying(session, job.jid, "provisioning"):
        callbacks.settle(session, jobs.load(session, job.jid), found, Stamp(by="worker"), "delivered")

    later = present(session, job)
    assert jobs.load(session, job.jid).status.room is Room.EMPTY
    callbacks.settle(session, jobs.load(session, job.jid), later, Stamp(by="worker"), "delivered")
    assert owed(session, job) is None
    assert jobs.load(session, job.jid).history[-1].message == "delivered"


def test_without_a_callback_url_in_the_profile_no_callback_is_made(
    session: Session, clients: Clients, receiver: Receiver
) -> None:
    collection(clients.settings)
    job = failed(session)

    try_once(session, clients, job)

    assert owed(session, job) is None
    assert jobs.load(session, job.jid).history == job.history


def test_a_job_whose_callback_failed_owes_no_callback(session: Session) -> None:
    job = planting.job_in(session, JobState.NOTIFY)

    planting.apply_event(session, job, Event.FAIL, FailureKind.TRANSIENT)

    assert session.children(paths.CALLBACKS) == []


def test_every_failure_has_its_own_callback(session: Session, clients: Clients, receiver: Receiver) -> None:
    first = failed(session)
    again = jobs.move(session, first, JobMove(Event.RESUME, "ann", lock=Lock.FREE))
    second = planting.apply_event(session, again, Event.FAIL, FailureKind.SYSTEM)

    try_once(session, clients, second)
    try_once(session, clients, first)

    assert len(receiver.received) == 1
    assert session.children(paths.CALLBACKS) == []


def test_a_callback_that_waits_for_a_worker_gets_no_second_message(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(session)
    monkeypatch.setattr(callbacks, "due", lambda of, *_: callbacks.read(of, callbacks.names(of)))
    context = make_context(settings)
    try:
        for _ in range(3):
            context.app.tasks["beat.sweep"]()
            assert waiting_messages(settings, (Queue.IO,)) == 1
    finally:
        context.drop_session()
