"""A drain is in the record: a restart keeps it, no message changes it, and its end restores the queues."""

import os
import re
import socket
import time
from collections.abc import Callable

import pytest

from operations.fleet import fleet as workers
from operations.site import Site
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import Queue
from tasks.broker import publisher, waiting_messages
from tests.e2e.collection import submit
from tests.servers import redis as redis_servers
from tests.servers.http_source import HttpSource
from tests.servers.proxy import Proxy
from tests.support import cli
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.operators import ANN
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.record.journal import Stamp

pytestmark = pytest.mark.timeout(300)

NAME = f"worker@{socket.gethostname()}"
EVERY = tuple(sorted(Queue))
STALLED_AFTER = 2.0
"""Seconds after which a worker that consumes none of the messages of its queues is restarted."""


def taken(settings: Settings, timeout: float = 60.0) -> tuple[str, ...]:
    """What the worker consumes, once it answers."""
    deadline = time.monotonic() + timeout
    while (queues := workers.taking(settings).get(NAME)) is None:
        assert time.monotonic() < deadline, f"{NAME} does not answer"
    return queues


def await_true(fact: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_worker_that_is_restarted_stays_drained_until_the_drain_is_undone(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.settings = settings.model_copy(update={"stalled_after": STALLED_AFTER})
    site = Site(settings, session)
    worker = fleet.worker()
    taken(settings)
    drained = workers.drain(site, ANN, NAME)
    worker.stop()

    restarted = fleet.worker()
    assert (drained.queues, drained.followed, taken(settings)) == ((), True, ())
    bid = submit(session, settings, source.put("/a.txt", b"content"), SubmissionType.FILE)

    # messages wait, and the worker leaves them on purpose: it does not count as stalled
    assert restarted.wait(3 * STALLED_AFTER) is None
    assert waiting_messages(settings, Queue) == 1
    back = workers.drain(site, ANN, NAME, undo=True)
    assert (back.queues, back.drain, back.followed) == (EVERY, None, True)
    fleet.beat()
    assert_completed(batch_ended(session, bid))


def test_a_drain_until_the_stop_ends_however_slow_zookeeper_is(
    session: Session, settings: Settings, fleet: Fleet, zookeeper_proxy: Proxy
) -> None:
    zookeeper_proxy.delay(0.4)  # of each answer
    fleet.settings = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})
    worker = fleet.worker()
    assert workers.drain(Site(settings, session), ANN, NAME, until_stop=True).followed

    worker.terminate()
    assert worker.wait(60) == os.EX_OK

    assert holds.drained(session) == {}


def test_a_drain_until_the_stop_ends_when_a_worker_that_was_killed_starts_again(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    worker = fleet.worker()
    workers.drain(Site(settings, session), ANN, NAME, until_stop=True)
    worker.kill()
    assert NAME in holds.drained(session)

    fleet.worker()

    assert (taken(settings), holds.drained(session)) == (EVERY, {})


@pytest.mark.parametrize("command", ["cancel_consumer", "add_consumer"])
def test_a_message_in_redis_changes_no_queue_that_a_worker_consumes(
    settings: Settings, fleet: Fleet, command: str
) -> None:
    worker = fleet.worker(queues="io,process")
    before = taken(settings)
    for queue in Queue:
        publisher(settings).control.broadcast(command, arguments={"queue": queue})

    # commands are handled in their order: the answer comes after them
    assert taken(settings) == before == ("io", "process")
    assert worker.command.log.read_text().count("a remote command was refused") == len(Queue)


def test_the_end_of_a_drain_restores_the_queues_that_the_worker_was_started_for(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    site = Site(settings, session)
    fleet.worker(queues="io")
    taken(settings)

    assert workers.drain(site, ANN, NAME).queues == ()
    assert workers.drain(site, ANN, NAME, undo=True).queues == ("io",)


def test_a_worker_stays_drained_without_zookeeper_and_after_a_new_connection_to_redis(
    session: Session,
    settings: Settings,
    fleet: Fleet,
    redis_server: redis_servers.Server,
    zookeeper_proxy: Proxy,
) -> None:
    with Proxy(redis_server.port) as redis_proxy:
        url = settings.broker_url.replace(f":{redis_server.port}/", f":{redis_proxy.port}/")
        fleet.settings = settings.model_copy(update={"broker_url": url, "zk_hosts": zookeeper_proxy.hosts})
        worker = fleet.worker()
        taken(settings)
        workers.drain(Site(settings, session), ANN, NAME)
        zookeeper_proxy.refuse()
        holds.end(session, Stamp.of(ANN), worker=NAME)
        redis_proxy.cut()
        log = worker.command.log
        await_true(lambda: log.read_text().count("Connected to redis") == 2, "no new connection")

        assert taken(settings) == ()
        zookeeper_proxy.accept()
        await_true(lambda: taken(settings) == EVERY, "the end of the drain is not followed")


def test_the_drain_of_a_worker_that_does_not_answer_can_be_undone(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    site = Site(settings, session)
    worker = fleet.worker()
    taken(settings)
    workers.drain(site, ANN, NAME, reason="because")
    worker.stop()
    (line,) = cli.run(settings, "drain").out.splitlines()
    assert re.fullmatch(rf"{NAME} is drained by ann@desk for .* \(because\): it does not answer\.", line)

    done = workers.drain(site, ANN, NAME, undo=True)

    assert (done.queues, done.answers, done.changed, done.followed) == ((), False, True, False)
    assert holds.drained(session) == {}
    fleet.worker()
    assert taken(settings) == EVERY
