"""Events of tasks while Redis does not answer: the work never waits for them, and later ones arrive."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.settings import Settings
from tasks.broker import configured
from tasks.events import MOST, TaskEvents
from tests.servers import redis as redis_servers
from tests.servers.redis import Server

HEARD = 30.0
"""Seconds in which an event has to arrive."""


@pytest.fixture
def server(tmp_path: Path, redis_server: Server) -> Iterator[Server]:
    """One of its own, to be suspended; where none can run, `redis_server` has said so."""
    with redis_servers.running(tmp_path / "redis") as running:
        yield running


def test_work_does_not_wait_for_a_redis_that_hangs_and_later_events_arrive(
    settings: Settings, server: Server
) -> None:
    app = configured(settings.model_copy(update={"broker_url": server.url}))
    events, arrived = TaskEvents(app, "worker@test"), threading.Event()

    def work() -> None:
        for number in range(3 * MOST):
            events.started(f"jid0000000001-{number}-pending")

    working = threading.Thread(target=work, daemon=True)
    server.process.send_signal(signal.SIGSTOP)
    working.start()
    working.join(HEARD)
    waits = working.is_alive()
    server.process.send_signal(signal.SIGCONT)

    def hear(event: dict[str, object]) -> None:
        if event["uuid"] == "later":
            arrived.set()

    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"task-started": hear})
        listening = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        listening.start()
        deadline = time.monotonic() + HEARD
        while not arrived.wait(0.5) and time.monotonic() < deadline:
            events.started("later")
        receiver.should_stop = True
        listening.join()

    assert not waits, "the work has waited for Redis"
    assert arrived.is_set()
