"""The messages in Redis can be read: kombu's names of its lists, and Celery's format of messages."""

from collections.abc import Iterator

import pytest
from celery import Celery

import celeryconfig
from pipeline.settings import Settings
from tasks.broker import live_tickets
from tasks.publisher import configured


@pytest.fixture
def app(settings: Settings) -> Iterator[Celery]:
    with configured(settings) as opened:
        yield opened


def send(app: Celery, queue: str, priority: int, jid: str) -> None:
    ticket = {"id": jid, "state": "pending", "epoch": priority + 1}
    app.send_task("job.pending", (ticket,), queue=queue, priority=priority)


def test_every_waiting_ticket_is_read_in_every_queue_and_priority(settings: Settings, app: Celery) -> None:
    for queue in celeryconfig.QUEUES:
        for priority in range(10):
            send(app, queue, priority, f"{queue}{priority}")

    found = live_tickets(settings)

    assert found == {(f"{queue}{p}", p + 1) for queue in celeryconfig.QUEUES for p in range(10)}


def test_a_ticket_that_a_worker_consumed_is_not_live(settings: Settings, app: Celery) -> None:
    send(app, "io", 3, "jid0000000001")

    with app.connection_for_read() as connection, connection.SimpleQueue("io") as queue:
        queue.get(timeout=5).ack()

    assert live_tickets(settings) == frozenset()


def test_messages_of_periodic_work_are_no_tickets(settings: Settings, app: Celery) -> None:
    app.send_task("beat.sweep", queue="control")

    assert live_tickets(settings) == frozenset()
