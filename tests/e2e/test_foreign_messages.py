"""Foreign and malformed messages in Redis stop neither the workers nor the sweep."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState
from tasks.broker import read_queues
from tasks.broker_claim import claim_key
from tasks.publisher import configured, publisher
from tests.e2e.collection import body_of, submit
from tests.e2e.test_deployment import await_true
from tests.e2e.test_remote_control import answered
from tests.servers.http_source import HttpSource
from tests.servers.redis import Server as RedisServer
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.fleet import fleet as running_fleet
from zkstate.session import Session


def envelope(settings: Settings, **changes: Any) -> bytes:
    """A message as Celery sends it, with changes."""
    sent: list[bytes] = []
    app = configured(settings)
    with app, redis.Redis.from_url(settings.broker_url) as client:
        app.send_task("job.pending", ({"id": "jid0000000009", "state": "pending", "epoch": 1},), queue="io")
        sent.append(client.lpop(f"{settings.broker_prefix}io"))
    return json.dumps({**json.loads(sent[0]), **changes}).encode()


def foreign(settings: Settings) -> dict[str, bytes]:
    return {
        "no JSON": b"hello",
        "no text": b"\xff\xfe\x00",
        "a list": b"[]",
        "a number": b"7",
        "a number of more digits than Python reads": b"1" * 5_000,
        "a body with such a number": envelope(settings, body=base64.b64encode(b"1" * 5_000).decode()),
        "an empty object": b"{}",
        "a body that is a number": envelope(settings, body=5),
        "a body that is not base64": envelope(settings, body="%%%"),
        "no properties": envelope(settings, properties=None),
        "no headers": envelope(settings, headers=None),
        "headers of another task": envelope(
            settings, headers={"task": "other.task", "id": "1", "lang": "py"}
        ),
        "headers of version 1": envelope(settings, headers={}),
        "a pickle": envelope(settings, **{"content-type": "application/x-python-serialize"}),
        "another encoding": envelope(settings, **{"content-encoding": "rot13"}),
        "huge": b"x" * 3_000_000,
    }


def completes_a_batch(session: Session, settings: Settings, source: HttpSource) -> None:
    bid = submit(session, settings, source.put("/a.txt", body_of("a")), SubmissionType.FILE)

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    assert answered(publisher(settings).control)


def test_foreign_messages_stop_neither_the_workers_nor_the_sweep(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, redis_server: RedisServer
) -> None:
    messages = foreign(settings)
    worker = fleet.worker(concurrency=1)
    pid = worker.pid
    with redis.Redis.from_url(redis_server.url) as client:
        for message in messages.values():
            client.lpush(f"{settings.broker_prefix}io", message)
            client.lpush(f"{settings.broker_prefix}control\x06\x163", message)
    fleet.beat()

    completes_a_batch(session, settings, source)
    assert worker.running
    assert worker.pid == pid


def commands() -> dict[str, bytes]:
    """What is no remote command that a worker could have been sent."""
    properties = {"delivery_mode": 2, "delivery_info": {}, "body_encoding": "base64", "delivery_tag": "1"}
    command = {
        "body": "",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"clock": 1},
        "properties": properties,
    }

    def changed(**changes: Any) -> bytes:
        return json.dumps({**command, **changes}).encode()

    def having(body: object) -> bytes:
        return changed(body=base64.b64encode(json.dumps(body).encode()).decode())

    return {
        "no JSON": b"hello",
        "a list": b"[]",
        "a number of more digits than Python reads": b"1" * 5_000,
        "nested too deeply": b"[" * 100_000,
        "an empty object": b"{}",
        "no properties": changed(properties=None),
        "no headers": changed(headers=None),
        "a body that is a number": changed(body=5),
        "a body that is not base64": changed(body="%%%"),
        "a body nested too deeply": changed(body=base64.b64encode(b"[" * 100_000).decode()),
        "another encoding": changed(**{"content-encoding": "rot13"}),
        "a body that is a list": having([]),
        "a clock that is a text": changed(headers={"clock": "late"}),
        "a method that is a list": having({"method": []}),
        "arguments that are a list": having({"method": "ping", "arguments": [1]}),
        "an answer to nowhere": having({"method": "ping", "reply_to": 5}),
        "a pattern that takes for ever": having(
            {"method": "ping", "matcher": "pcre", "pattern": "[a-z@.-]*" * 80 + "!"}
        ),
    }


def test_foreign_messages_in_the_channel_of_remote_control_stop_no_worker(
    settings: Settings, fleet: Fleet, redis_server: RedisServer
) -> None:
    worker = fleet.worker(concurrency=1)
    control = publisher(settings).control
    assert answered(control)
    channel = f"{settings.broker_prefix}/0.celery.pidbox"
    with redis.Redis.from_url(redis_server.url) as client:
        for name, message in commands().items():
            assert client.publish(channel, message), name

    # commands are handled in their order: the answer comes after the others
    assert answered(control)
    assert worker.running


KEY = "a key of this site"


def tickets(settings: Settings, jid: str) -> bytes:
    """The message of a ticket as a process with these settings sends it."""
    with configured(settings) as app, redis.Redis.from_url(settings.broker_url) as client:
        app.send_task("job.pending", ({"id": jid, "state": "pending", "epoch": 1},), queue="io")
        message: bytes = client.lpop(f"{settings.broker_prefix}io")
    return message


def test_messages_of_who_has_no_key_are_rejected_and_those_of_the_fleet_are_not(
    session: Session, settings: Settings, source: HttpSource, redis_server: RedisServer
) -> None:
    signing = settings.model_copy(update={"message_key": SecretStr(KEY)})
    signed = json.loads(tickets(signing, "jid0000000009"))
    changed = json.loads(envelope(signing))["body"]
    strangers = {
        "unsigned": tickets(settings, "jid0000000009"),
        "of another key": tickets(
            settings.model_copy(update={"message_key": SecretStr("a key of another")}), "jid0000000009"
        ),
        "with another body": json.dumps({**signed, "body": changed[:-8] + "AAAAAAA="}).encode(),
        "of another task": json.dumps(
            {**signed, "headers": {**signed["headers"], "task": "beat.sweep"}}
        ).encode(),
    }
    with redis.Redis.from_url(redis_server.url) as client, running_fleet(signing) as fleet:
        for message in strangers.values():
            client.lpush(f"{settings.broker_prefix}io", message)
        assert read_queues(signing).foreign == len(strangers)
        worker = fleet.worker(concurrency=1)
        fleet.beat()
        bid = submit(session, signing, source.put("/a.txt", body_of("a")), SubmissionType.FILE)

        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
        log = worker.log_tail(10_000)
        quiet(session)

    assert log.count("foreign message rejected") == len(strangers)
    assert log.count("it has no signature") == 1
    assert KEY not in log


@pytest.mark.parametrize("kind", ["string", "hash"])
def test_a_key_of_another_type_stops_neither_the_workers_nor_the_sweep(
    session: Session,
    settings: Settings,
    fleet: Fleet,
    source: HttpSource,
    redis_server: RedisServer,
    kind: str,
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        for queue in ("io", "control", "download\x06\x165"):
            key = f"{settings.broker_prefix}{queue}"
            if kind == "string":
                client.set(key, "mine")
            else:
                client.hset(key, "mine", "1")
    worker = fleet.worker(concurrency=1)
    fleet.beat()
    bid = submit(session, settings, source.put("/a.txt", body_of("a")), SubmissionType.FILE)

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    assert worker.running


CLAIMS: dict[str, Callable[[redis.Redis, str], object]] = {
    "the id of another deployment": lambda client, key: client.set(key, "b" * 32),
    "an empty text": lambda client, key: client.set(key, ""),
    "a list": lambda client, key: client.lpush(key, "mine"),
}


@pytest.mark.parametrize("value", CLAIMS)
def test_the_claim_of_the_prefix_in_redis_neither_ends_a_worker_nor_stops_a_start(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, value: str
) -> None:
    """The record says that the prefix is this deployment's."""
    worker = fleet.worker(concurrency=1)
    pid, key = worker.pid, claim_key(settings)
    client = redis.Redis.from_url(settings.broker_url)
    own = client.get(key)

    def write() -> None:
        client.delete(key)
        CLAIMS[value](client, key)

    def is_set_again() -> bool:
        return client.type(key) == b"string" and client.get(key) == own

    with client:
        write()
        await_true(is_set_again, 30, lambda: f"{key} has the id of this deployment")
        write()
        fleet.beat()
        bid = submit(session, settings, source.put("/a.txt", body_of("a")), SubmissionType.FILE)
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
        worker.terminate()
        worker.stop(30)
        write()
        fleet.worker("started-later", concurrency=1)
    assert worker.pid == pid


OWN_KEYS = (
    *("unacked", "unacked_index", "unacked_mutex", "_kombu.binding_deadlines"),
    *("_kombu.binding.io", "_kombu.binding.celery.pidbox", "_kombu.binding.reply.celery.pidbox"),
    *("_kombu.binding_permanent.io", "_kombu.binding_permanent.celery.pidbox"),
)
"""Beside the lists of messages."""


@pytest.mark.parametrize("moment", ["before the start", "while workers run"])
def test_keys_of_kombu_with_values_of_others_stop_neither_the_workers_nor_the_sweep(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, moment: str
) -> None:
    def write() -> None:
        with redis.Redis.from_url(settings.broker_url) as client:
            for name in OWN_KEYS:
                client.delete(f"{settings.broker_prefix}{name}")
                client.set(f"{settings.broker_prefix}{name}", "mine")

    if moment == "before the start":
        write()
    worker = fleet.worker(concurrency=1)
    pid = worker.pid
    if moment == "while workers run":
        write()
    fleet.beat()

    completes_a_batch(session, settings, source)
    assert worker.running
    assert worker.pid == pid
