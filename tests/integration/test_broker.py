"""The messages in Redis can be read: kombu's names of its lists, and Celery's format of messages."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from pydantic import SecretStr, ValidationError

import celeryconfig
from pipeline.settings import Settings
from tasks.broker import Queued, live_tickets, read_queues
from tasks.message import Foreign
from tasks.publisher import configured
from tasks.signing import keys_of


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

    assert live_tickets(settings) == frozenset()


def test_messages_of_periodic_work_are_no_tickets(settings: Settings, app: Celery) -> None:
    app.send_task("beat.sweep", queue="control")

    assert live_tickets(settings) == frozenset()


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
    assert live_tickets(settings) == {("jid0000000001", 1)}


OLD, NEW = "the old key of the site", "the new key of the site"


@pytest.mark.parametrize(
    ("sender", "reader", "seen"),
    [
        ({"message_key": NEW}, {"message_key": NEW}, True),
        ({}, {"message_key": NEW}, False),
        ({"message_key": OLD}, {"message_key": NEW}, False),
        ({"message_key": OLD}, {"message_key": f"{NEW}, {OLD}"}, True),
        ({"message_key": f"{NEW},{OLD}"}, {"message_key": OLD}, False),
        ({"message_key": f"{OLD},{NEW}"}, {"message_key": OLD}, True),
        ({}, {"message_key": NEW, "message_unsigned": True}, True),
        ({"message_key": OLD}, {"message_key": NEW, "message_unsigned": True}, False),
        ({"message_key": NEW}, {}, True),
    ],
)
def test_a_key_is_introduced_and_replaced_in_steps(
    settings: Settings, sender: dict[str, Any], reader: dict[str, Any], seen: bool
) -> None:
    def having(given: dict[str, Any]) -> Settings:
        changes = {**given, "message_key": SecretStr(given.get("message_key", ""))}
        return settings.model_copy(update=changes)

    with configured(having(sender)) as app:
        send(app, "io", 3, "jid0000000001")

    found = read_queues(having(reader))

    assert (bool(found.tickets), found.foreign) == (seen, 0 if seen else 1)


def test_a_message_is_signed_although_its_channel_has_lost_the_connection(settings: Settings) -> None:
    signing = settings.model_copy(update={"message_key": SecretStr(NEW)})
    headers = {"task": "job.pending", "id": "1"}
    properties = {"delivery_info": {}, "delivery_tag": "1", "priority": 0}
    message = {"body": "W10=", "headers": headers, "properties": properties}
    with configured(signing) as app, app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel._put("io", message)
        transport, channel.connection = channel.connection, None  # as when Redis has closed it
        channel._put("io", message)
        channel.connection = transport
        with redis.Redis.from_url(settings.broker_url) as client:
            sent = [json.loads(client.lpop(f"{settings.broker_prefix}io")) for _ in range(2)]

    for signed in sent:
        keys_of(signing).verify(signed)
    with pytest.raises(Foreign):
        keys_of(signing).verify({**sent[0], "headers": headers})


def test_processes_do_not_show_the_key(settings: Settings) -> None:
    with configured(settings.model_copy(update={"message_key": SecretStr(NEW)})) as app:
        shown = f"{app.conf.humanize(with_defaults=False)} {app.conf.table()} {app.connection()!r}"
        shown += f" {app.conf.broker_transport_options!r}"

    assert NEW not in shown


def test_a_key_that_can_be_guessed_is_refused_without_being_shown() -> None:
    with pytest.raises(ValidationError, match="shorter than 16 characters") as refusal:
        Settings(message_key=f"{NEW},short")
    assert "short" not in str(refusal.value).replace("shorter", "")
