"""The messages that no worker has consumed yet.

The backlog stays in ZooKeeper and the queues in Redis are short, so the queues can be read completely. That
shows exactly which jobs still have a message, instead of a guess from how long they wait.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import redis
from kombu.exceptions import OperationalError

import celeryconfig
from pipeline.settings import Settings

_SEPARATOR = "\x06\x16"
"""Between a queue's name and its priority step: kombu's Redis transport, `priority_steps`."""


def live_tickets(settings: Settings) -> frozenset[tuple[str, int]]:
    """(id, epoch) of every ticket in the queues; OperationalError if Redis does not answer."""
    try:
        with _client(settings) as client, client.pipeline(transaction=False) as reads:
            for name in _lists(settings, celeryconfig.QUEUES):
                reads.lrange(name, 0, -1)
            messages = [message for queue in reads.execute() for message in queue]
    except redis.RedisError as error:
        raise OperationalError(str(error)) from error
    tickets = (_ticket(json.loads(message)) for message in messages)
    return frozenset(ticket for ticket in tickets if ticket is not None)


def waiting_messages(settings: Settings, queues: Iterable[str]) -> int:
    """The number of messages in these queues; redis.RedisError if Redis does not answer."""
    with _client(settings) as client, client.pipeline(transaction=False) as reads:
        for name in _lists(settings, queues):
            reads.llen(name)
        return sum(reads.execute())


def _client(settings: Settings) -> redis.Redis:
    return redis.Redis.from_url(settings.broker_url, socket_timeout=5, socket_connect_timeout=5)


def _lists(settings: Settings, queues: Iterable[str]) -> Iterator[str]:
    """The names of the lists in Redis: one for each queue and priority step."""
    for queue in queues:
        for step in celeryconfig.PRIORITY_STEPS:
            suffix = f"{_SEPARATOR}{step}" if step else ""
            yield f"{settings.broker_prefix}{queue}{suffix}"


def _ticket(message: dict[str, Any]) -> tuple[str, int] | None:
    arguments = json.loads(base64.b64decode(message["body"]))[0]
    if not arguments or not isinstance(arguments[0], dict) or "epoch" not in arguments[0]:
        return None
    return str(arguments[0]["id"]), int(arguments[0]["epoch"])
