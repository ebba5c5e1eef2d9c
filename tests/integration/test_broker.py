"""What lies in Redis can be read: kombu's own names of its lists, and Celery's own messages."""

from collections.abc import Iterator

import pytest
from kombu import Connection

import celeryconfig
from pipeline.settings import Settings
from tasks.app import app
from tasks.broker import live_tickets


@pytest.fixture
def connection(settings: Settings) -> Iterator[Connection]:
    options = celeryconfig.broker_transport_options | {"global_keyprefix": settings.broker_prefix}
    with Connection(settings.broker_url, transport_options=options) as opened:
        yield opened


def send(connection: Connection, queue: str, priority: int, jid: str) -> None:
    ticket = {"id": jid, "state": "pending", "epoch": priority + 1}
    app.send_task("job.pending", (ticket,), connection=connection, queue=queue, priority=priority)


def test_every_waiting_ticket_is_found_in_every_queue_and_priority(
    settings: Settings, connection: Connection
) -> None:
    for queue in celeryconfig.QUEUES:
        for priority in range(10):
            send(connection, queue, priority, f"{queue}{priority}")

    found = live_tickets(settings)

    assert found == {(f"{queue}{p}", p + 1) for queue in celeryconfig.QUEUES for p in range(10)}


def test_a_ticket_that_a_worker_took_is_not_live(settings: Settings, connection: Connection) -> None:
    send(connection, "io", 3, "jid0000000001")

    with connection.SimpleQueue("io") as queue:
        queue.get(timeout=5).ack()

    assert live_tickets(settings) == frozenset()


def test_timed_work_is_no_ticket(settings: Settings, connection: Connection) -> None:
    app.send_task("beat.sweep", connection=connection, queue="control")

    assert live_tickets(settings) == frozenset()
