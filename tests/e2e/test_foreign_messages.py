"""Foreign and malformed messages in Redis stop neither the workers nor the sweep."""

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from pipeline.records import SubmissionType, Ticket
from pipeline.settings import Settings
from pipeline.states import BatchState
from tasks.broker import Queued, configured, dispatch_job, publisher, read_queues
from tasks.redis_keys import list_of, step_of
from tasks.stores import claim_key
from tests.e2e.collection import body_of, submit
from tests.e2e.test_deployment import await_true
from tests.e2e.test_remote_control import answered
from tests.servers.http_source import HttpSource
from tests.servers.redis import Server as RedisServer
from tests.support import nightly, planting
from tests.support.fleet import Fleet, batch_ended, quiet
from zkstate.connection.session import Session
from zkstate.record import jobs, record


def envelope(settings: Settings, **changes: Any) -> bytes:
    """A message as Celery sends it, with changes."""
    sent: list[bytes] = []
    app = configured(settings)
    with app, redis.Redis.from_url(settings.broker_url) as client:
        assert dispatch_job(app, Ticket(id="jid0000000009", state="pending", epoch=1))
        sent.append(client.lpop(list_of(settings.broker_prefix, "io", step_of(0))))
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

        def is_received(message: bytes) -> bool:
            return bool(client.publish(channel, message))

        for name, message in commands().items():
            # after some of them the worker subscribes anew
            await_true(partial(is_received, message), 60, partial(str, name))

    # commands are handled in their order: the answer comes after the others
    assert answered(control)
    assert worker.running


ODD: tuple[Any, ...] = (5, -1, "x", "9" * 400, [], ["x"], {}, {"x": 1}, True, 1e300, "\ud800")
"""Values of types and sizes that Celery does not write."""


def odd_parts(settings: Settings) -> list[bytes]:
    """Messages of which one header, property or part is odd; the ticket is of no job."""
    whole = json.loads(envelope(settings))
    body = json.loads(base64.b64decode(whole["body"]))
    messages = [
        envelope(settings, **{part: {**whole[part], name: value}})
        for part in ("headers", "properties")
        for name in whole[part]
        for value in ODD
    ]
    for value in ODD:
        changed = [[value], {}, body[2]], [body[0], {"x": value}, body[2]]
        embedded = [[body[0], {}, {**body[2], name: value}] for name in body[2]]
        chains = [
            [body[0], {}, {**body[2], "chain": [{**body[2]["chain"][0], name: value}]}]
            for name in body[2]["chain"][0]
        ]
        tickets = [[[{**body[0][0], name: value}], {}, body[2]] for name in body[0][0]]
        messages += [with_body(settings, odd) for odd in (*changed, *embedded, *chains, *tickets)]
    return messages


def with_body(settings: Settings, body: object, **headers: object) -> bytes:
    """A message with this body, and some other headers."""
    encoded = base64.b64encode(json.dumps(body).encode()).decode()
    whole = json.loads(envelope(settings))
    return envelope(settings, body=encoded, headers={**whole["headers"], **headers})


def test_no_odd_part_of_a_message_ends_a_worker(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, redis_server: RedisServer
) -> None:
    messages = odd_parts(settings)
    worker = fleet.worker(concurrency=1)
    pid = worker.pid
    with redis.Redis.from_url(redis_server.url) as client:
        for message in messages:
            client.lpush(f"{settings.broker_prefix}io", message)
    fleet.beat()

    completes_a_batch(session, settings, source)
    assert worker.running
    assert worker.pid == pid
    assert max(map(len, worker.command.log.read_text().splitlines())) < 10_000


def orders(settings: Settings, ticket: Ticket) -> dict[str, bytes]:
    """Messages with the ticket of a job, which order the worker to do more than arkline has it do."""
    call: list[Any] = [[ticket.model_dump()], {}, dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))]
    task: dict[str, Any] = {
        "task": "beat.sweep",
        "args": [],
        "kwargs": {},
        "options": {},
        "subtask_type": None,
    }

    def followed(**embedded: object) -> bytes:
        return with_body(settings, [call[0], {}, {**call[2], **embedded}])

    return {
        "a limit of time, which ends the process": with_body(settings, call, timelimit=[0.001, 0.001]),
        "a time far away, until which the worker keeps the message": with_body(
            settings, call, eta="2099-01-01T00:00:00+00:00"
        ),
        "compressed content": with_body(settings, call, compression="application/x-bz2"),
        "a task at the end": followed(callbacks=[task]),
        "a task after an error": followed(errbacks=[task]),
        "a chord": followed(chord=task),
        "a chain of other tasks": followed(chain=[{**task, "immutable": False}]),
        "a chain that leads to another queue": followed(
            chain=[{**task, "task": "job.estimating", "options": {"queue": "split"}}]
        ),
        "a task of Celery's own": with_body(settings, [["x"], {}, call[2]], task="celery.backend_cleanup"),
        "a task that nobody has": with_body(settings, call, task="job.nothing"),
        "two tickets": with_body(settings, [call[0] * 2, {}, call[2]]),
        "a path in the place of a name": with_body(
            settings, [[{**ticket.model_dump(), "id": "../batches"}], {}, call[2]]
        ),
        "a name of a megabyte": with_body(
            settings, [[{**ticket.model_dump(), "id": "jid" + "0" * 1_000_000}], {}, call[2]]
        ),
        "scheduled work with arguments": with_body(settings, call, task="beat.sweep"),
        "a callback of no job": with_body(settings, [["x" * 1000, 1], {}, call[2]], task="callback.failed"),
    }


def test_a_message_that_orders_more_than_a_job_is_one_line_in_the_log_and_begins_no_work(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, redis_server: RedisServer
) -> None:
    job = planting.one_job(session, payload_url=source.put("/b.txt", body_of("b")))
    messages = orders(settings, record.ticket(job))
    with redis.Redis.from_url(redis_server.url) as client:
        for message in messages.values():
            client.lpush(f"{settings.broker_prefix}io", message)
        assert read_queues(settings) == Queued(frozenset(), len(messages))
        worker = fleet.worker(concurrency=1)
        await_true(
            lambda: not client.exists(f"{settings.broker_prefix}io"), 60, lambda: "all messages are taken"
        )

    assert answered(publisher(settings).control)
    log = worker.log_tail(10_000)
    assert log.count("foreign message rejected") == len(messages)
    assert len(log) < 40_000
    assert jobs.load(session, job.jid) == job
    assert worker.running


def test_a_message_of_0_2_1_with_a_signature_is_taken(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, redis_server: RedisServer
) -> None:
    bid, (jid,) = planting.split_batch(session, 1, payload_url=source.put("/a.txt", body_of("a")))
    ticket = record.ticket(jobs.load(session, jid)).model_dump()
    signed = with_body(settings, [[ticket], {}, {}], arkline_signature="0" * 64)
    with redis.Redis.from_url(redis_server.url) as client:
        client.lpush(f"{settings.broker_prefix}io", signed)
    fleet.worker(concurrency=1)

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED


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


@pytest.mark.parametrize(
    "value", [name if name == "a list" else pytest.param(name, marks=nightly.case) for name in CLAIMS]
)
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
