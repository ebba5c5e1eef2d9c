"""The messages in Redis can be read: kombu's names of its lists, and the form of messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

import celeryconfig
from pipeline.settings import Settings
from tasks.broker import Queued, configured, read_queues
from tests.servers import redis as redis_servers


@pytest.fixture
def app(settings: Settings) -> Iterator[Celery]:
    with configured(settings) as opened:
        yield opened


def send(app: Celery, queue: str, priority: int, jid: str) -> None:
    ticket = {"id": jid, "state": "pending", "epoch": priority + 1}
    app.send_task("job.pending", (ticket,), queue=queue, priority=priority)


def jid_of(queue: str, priority: int) -> str:
    return f"jid{celeryconfig.QUEUES.index(queue)}{priority:09}"


def test_every_waiting_ticket_is_read_in_every_queue_and_priority(settings: Settings, app: Celery) -> None:
    for queue in celeryconfig.QUEUES:
        for priority in range(10):
            send(app, queue, priority, jid_of(queue, priority))

    found = read_queues(settings).tickets

    assert found == {(jid_of(queue, p), p + 1) for queue in celeryconfig.QUEUES for p in range(10)}


@pytest.fixture
def channel(app: Celery) -> Iterator[Any]:
    with app.connection_for_read() as connection, connection.channel() as opened:
        yield opened


@pytest.mark.parametrize("value", ["hello", "[]", "7", "[1, 2]", '["a", "b", "c", "d"]', "[" * 100_000])
def test_what_waits_for_an_acknowledgement_and_is_no_message_is_removed(
    settings: Settings, channel: Any, value: str
) -> None:
    """kombu gives back what is older than its timeout, between two messages."""
    prefix = settings.broker_prefix
    with redis.Redis.from_url(settings.broker_url) as client:
        client.hset(f"{prefix}unacked", "theirs", value)
        client.zadd(f"{prefix}unacked_index", {"theirs": 1})
        channel.qos.restore_visible()

        assert not client.exists(f"{prefix}unacked", f"{prefix}unacked_index")


def test_an_entry_that_kombu_did_not_write_hides_no_queue_of_an_exchange(
    settings: Settings, channel: Any
) -> None:
    with redis.Redis.from_url(settings.broker_url) as client:
        client.sadd(f"{settings.broker_prefix}_kombu.binding.replies", "mine", "key\x06\x16\x06\x16own")

    assert channel.get_table("replies") == [("key", "", "own")]


def test_a_ticket_that_a_worker_consumed_is_not_live(settings: Settings, app: Celery) -> None:
    send(app, "io", 3, "jid0000000001")

    with app.connection_for_read() as connection, connection.SimpleQueue("io") as queue:
        queue.get(timeout=30).ack()

    assert read_queues(settings).tickets == frozenset()


def test_messages_of_periodic_work_are_no_tickets(settings: Settings, app: Celery) -> None:
    app.send_task("beat.sweep", queue="control")

    assert read_queues(settings).tickets == frozenset()


def test_foreign_messages_are_counted_and_hide_no_ticket(settings: Settings, app: Celery) -> None:
    send(app, "io", 0, "jid0000000001")
    with redis.Redis.from_url(settings.broker_url) as client:
        for message in (b"hello", b"\xff", b"[]", b"{}", b"x" * 1_000_000, b"[" * 100_000):
            client.lpush(f"{settings.broker_prefix}io", message)
        client.set(f"{settings.broker_prefix}download", "no list")
    send(app, "io", 0, "jid0000000002")

    assert read_queues(settings) == Queued(frozenset({("jid0000000001", 1), ("jid0000000002", 1)}), 7)


def test_a_message_for_a_queue_whose_key_is_foreign_is_sent_and_the_key_is_kept(
    settings: Settings, app: Celery
) -> None:
    with redis.Redis.from_url(settings.broker_url) as client:
        client.set(f"{settings.broker_prefix}io", "mine")

        send(app, "io", 0, "jid0000000001")

        assert client.get(f"{settings.broker_prefix}io.foreign") == b"mine"
    assert read_queues(settings).tickets == {("jid0000000001", 1)}


def test_redis_keeps_no_file_that_a_power_cut_could_damage(tmp_path: Path) -> None:
    with redis_servers.running(tmp_path) as server:
        redis.Redis.from_url(server.url).set("key", "value")
        server.process.kill()

        server.start()

        assert redis.Redis.from_url(server.url).get("key") is None
        server.process.stop()
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "redis.log"}
