"""A lock that the answering record does not have: its holder drops the session, which frees every lock."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.protocol.serialization import Delete, int_struct

from pipeline import codes
from pipeline.attempt import is_over
from pipeline.outcome import AttemptOver
from pipeline.settings import Settings
from tasks.broker import publisher
from tasks.scheduled import beat
from tasks.worker_context import WorkerContext
from tests.servers.proxy import Proxy
from tests.support.errors import raises_code
from tests.support.polling import eventually
from zkstate import paths
from zkstate.connection import locks
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.fleet import hosts

LOCK = paths.exclusive("single-flight", "sweep")


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = WorkerContext(settings, publisher(settings))
    yield opened
    opened.drop_session()


def test_whoever_runs_alone_learns_that_the_lock_vanished(session: Session) -> None:
    with raises_code(codes.LOCK_LOST, match="another record answers"), locks.single_flight(session, "sweep"):
        session.ask(session.zk.delete_async, LOCK)


def test_whoever_runs_alone_does_not_release_the_lock_of_another(session: Session) -> None:
    with raises_code(codes.LOCK_LOST), locks.single_flight(session, "sweep"):
        session.ask(session.zk.set_async, LOCK, b"another holder")
    assert session.get(LOCK)[0] == b"another holder"


def test_a_lock_whose_deletion_was_lost_on_the_way_stays_with_no_process_that_lives_on(
    shaky: Session, session: Session, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_mine = locks._is_mine

    def lose_what_follows(*given: Any) -> bool:
        monkeypatch.setattr(locks, "_is_mine", is_mine)
        answer = is_mine(*given)
        zookeeper_proxy.partition()
        threading.Timer(0.5, zookeeper_proxy.cut).start()
        return answer

    with locks.single_flight(shaky, "sweep"):
        monkeypatch.setattr(locks, "_is_mine", lose_what_follows)

    assert session.exists(LOCK) is None


def test_a_lock_that_was_deleted_although_the_answer_was_lost_is_not_in_doubt(
    shaky: Session, session: Session, zookeeper_proxy: Proxy
) -> None:
    def reconnect() -> None:
        assert zookeeper_proxy.swallowed.wait(30)
        zookeeper_proxy.cut()

    with locks.single_flight(shaky, "sweep"):
        deletion = Delete(shaky.zk.chroot + LOCK, -1)
        zookeeper_proxy.swallow_after(int_struct.pack(deletion.type) + deletion.serialize())
        reconnecting = threading.Thread(target=reconnect)
        reconnecting.start()

    reconnecting.join()
    assert session.exists(LOCK) is None


def test_a_connection_whose_place_vanished_is_in_doubt(session: Session) -> None:
    connection = hosts.acquire_connection(session, "example.org", 1, "jid0000000001", threading.Event())
    assert connection is not None
    session.ask(session.zk.delete_async, connection.path)

    with raises_code(codes.LOCK_LOST):
        connection.release()


def test_scheduled_work_whose_lock_vanished_drops_its_session_so_that_no_lock_stays(
    context: WorkerContext, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an exchange of the record: data that come back have the lock of a session that still lives."""
    used: list[int] = []

    def work(_: WorkerContext, own: Session, __: ServerClock) -> None:
        used.append(own.id)
        session.ask(session.zk.delete_async, LOCK)

    monkeypatch.setitem(beat.WORK, "sweep", work)
    for _ in range(2):
        beat._run_alone("sweep", context)

    assert used[0] != used[1]


def test_a_short_break_of_the_connection_ends_no_attempt(
    shaky: Session, session: Session, zookeeper_proxy: Proxy
) -> None:
    guard = watched(shaky)

    break_shortly(shaky, zookeeper_proxy)
    guard.check()
    break_shortly(shaky, zookeeper_proxy)
    guard.check()

    session.ask(session.zk.set_async, LOCK, b"yield")
    eventually(guard.yields)
    guard.check()
    session.ask(session.zk.delete_async, LOCK)
    eventually(lambda: is_over(guard))


def test_a_lock_that_was_taken_anew_during_a_short_break_is_not_that_of_the_attempt(
    shaky: Session, session: Session, zookeeper_proxy: Proxy
) -> None:
    guard = watched(shaky)
    guard.check()

    zookeeper_proxy.refuse()
    session.ask(session.zk.delete_async, LOCK)
    locks.take(session, LOCK, "a later attempt")
    zookeeper_proxy.accept()
    eventually(lambda: shaky.connected)
    shaky.exists(LOCK)

    with pytest.raises(AttemptOver, match="the lock was removed"):
        guard.check()


def watched(session: Session) -> AttemptGuard:
    """The guard of an attempt that has taken its lock, which is watched."""
    guard = AttemptGuard(session)
    locks.take(session, LOCK, "this attempt")
    guard.watch_lock(LOCK)
    session.exists(LOCK)  # answers come in the order of the requests
    return guard


def break_shortly(session: Session, proxy: Proxy) -> None:
    before = session.connections
    proxy.cut()
    eventually(lambda: session.connections > before and session.connected)
    session.exists(LOCK)
