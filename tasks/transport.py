"""kombu's Redis transport, for which a foreign message or key is a log entry.

kombu's own hands everything in a list to Celery: an item that is not a message, or a key of another type
in the place of a list, ends the worker or has it reconnect for ever.
"""

from collections.abc import Callable
from typing import Any

import redis
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from kombu.transport.virtual import Empty
from kombu.utils.json import dumps

import celeryconfig
from tasks.logs import log
from tasks.message import Foreign, check_control, checked
from tasks.signing import OPTION, Keys

SET_ASIDE = ".foreign"
"""A key of another type in the place of a queue gets this ending: nothing of others is deleted."""

_WRONG_TYPE = "WRONGTYPE"


class Channel(kombu_redis.Channel):
    message_keys = Keys()
    from_transport_options = (*kombu_redis.Channel.from_transport_options, OPTION)
    """Set when the channel is made: a channel that Redis has closed knows its transport no more."""
    receivers: int | None = None
    """Of the last message to everybody: clients that Redis has handed it to. None before the first."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # not in its stubs
        except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or a number of thousands of digits
            _reject(error)
            return True
        except redis.ResponseError as error:
            if _WRONG_TYPE not in str(error):
                raise
            self._set_aside_foreign_keys(*self.active_queues)
            raise Empty from error

    def _receive_one(self, client: Any) -> Any:
        """A message to everybody; kombu rejects what is not JSON, if it is not nested too deeply."""
        try:
            return super()._receive_one(client)  # type: ignore[misc]  # not in its stubs
        except RecursionError as error:
            _reject(error)
            raise Empty from error

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        if queue in celeryconfig.QUEUES:
            message = self.message_keys.sign(message)
        self._among_foreign_keys(queue, lambda: super(Channel, self)._put(queue, message, **options))

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **options: Any) -> None:
        """As kombu's own, which forgets how many received the message."""
        if options.get("_publish_batch") is not None:
            super()._put_fanout(exchange, message, routing_key, **options)  # type: ignore[misc]
            return
        topics = self._get_publish_topics(exchange, routing_key)  # type: ignore[attr-defined]
        with self.conn_or_acquire() as client:
            self.receivers = sum(client.publish(topic, dumps(message)) for topic in topics)

    def _size(self, queue: str) -> int:
        size: int = self._among_foreign_keys(queue, lambda: super(Channel, self)._size(queue))
        return size

    def _among_foreign_keys(self, queue: str, work: Callable[[], Any]) -> Any:
        """What `work` returns; a foreign key in the place of the queue is renamed first."""
        try:
            return work()
        except redis.ResponseError as error:
            if _WRONG_TYPE not in str(error):
                raise
            self._set_aside_foreign_keys(queue)
            return work()

    def _set_aside_foreign_keys(self, *queues: str) -> None:
        for queue in queues:
            for step in self.priority_steps:
                key = f"{self.global_keyprefix}{self._q_for_pri(queue, step)}"  # type: ignore[attr-defined]
                with self.conn_or_acquire() as client:
                    if client.type(key) not in (b"list", b"none"):
                        client.rename(key, key + SET_ASIDE)
                        log().error("a foreign key was in the place of a queue; renamed", key=key + SET_ASIDE)


class Transport(kombu_redis.Transport):
    Channel = Channel

    def _deliver(self, delivered: Any, queue: str | None) -> None:
        """Only what arkline sends is signed: Celery's remote control has queues and forms of its own."""
        try:
            if queue in celeryconfig.QUEUES:
                _keys(self.client).verify(checked(delivered))
            else:
                check_control(delivered)
        except Foreign as error:
            _reject(error)
        else:
            super()._deliver(delivered, queue)


def _keys(connection: Any) -> Keys:
    keys: Keys = connection.transport_options.get(OPTION, Keys())
    return keys


def _reject(error: Exception) -> None:
    log().error("foreign message rejected; send nothing to arkline's queues by hand", error=str(error))


def register() -> None:
    """Have kombu use this transport for redis: and rediss: URLs; Flower and Celery show those names."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
