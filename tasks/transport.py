"""kombu's Redis transport, for which a foreign message or key is a log entry.

kombu's own hands everything in a list to Celery: an item that is not a message, or a key of another type
in the place of a list, ends the worker or has it reconnect for ever.
"""

from collections.abc import Callable
from typing import Any

import kombu.transport.redis
import redis
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.virtual import Empty
from kombu.utils.json import dumps

import celeryconfig
from tasks.logs import log
from tasks.message import Foreign, check, check_control

SET_ASIDE = ".foreign"
"""A key of another type in the place of one of kombu's gets this ending: nothing of others is deleted."""

_TABLES = ("_kombu.binding.{}", "_kombu.binding_permanent.{}")
"""Sets that kombu keeps for an exchange."""

_DEADLINES = "_kombu.binding_deadlines"

_BINDING_PARTS = 3
"""Of an entry in the table of an exchange: routing key, pattern and queue."""

_WRONG_TYPE = "WRONGTYPE"


class QoS(kombu.transport.redis.QoS):
    """Messages that wait for an acknowledgement: their keys may be foreign, or have foreign values."""

    channel: "Channel"

    def append(self, message: Any, delivery_tag: str) -> None:
        self.channel.among_foreign_keys(lambda: super(QoS, self).append(message, delivery_tag))

    def ack(self, delivery_tag: str) -> None:
        self.channel.among_foreign_keys(lambda: super(QoS, self).ack(delivery_tag))

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.among_foreign_keys(lambda: super(QoS, self).reject(delivery_tag, requeue))

    def restore_visible(self, *args: Any, **options: Any) -> None:
        self.channel.among_foreign_keys(lambda: super(QoS, self).restore_visible(*args, **options))

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        restore = super().restore_by_tag
        try:
            self.channel.among_foreign_keys(lambda: restore(tag, client, leftmost))
        except (ValueError, TypeError, RecursionError) as error:  # no JSON, or not of kombu's three parts
            _reject(error)
            self._remove_from_indices(tag).execute()  # type: ignore[attr-defined]


class Channel(kombu.transport.redis.Channel):
    QoS = QoS
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
        self.among_foreign_keys(lambda: super(Channel, self)._put(queue, message, **options), queue)

    def _queue_bind(self, exchange: str, *args: Any) -> None:
        bind = super()._queue_bind  # type: ignore[misc]
        self.among_foreign_keys(lambda: bind(exchange, *args), exchange=exchange)

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """The queues of an exchange; an entry that kombu did not write is left out."""
        get = super().get_table
        entries = self.among_foreign_keys(lambda: get(exchange), exchange=exchange)
        return [entry for entry in entries if len(entry) == _BINDING_PARTS]

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **options: Any) -> None:
        """As kombu's own, which forgets how many received the message."""
        if options.get("_publish_batch") is not None:
            super()._put_fanout(exchange, message, routing_key, **options)  # type: ignore[misc]
            return
        topics = self._get_publish_topics(exchange, routing_key)  # type: ignore[attr-defined]
        with self.conn_or_acquire() as client:
            self.receivers = sum(client.publish(topic, dumps(message)) for topic in topics)

    def _size(self, queue: str) -> int:
        size: int = self.among_foreign_keys(lambda: super(Channel, self)._size(queue), queue)
        return size

    def among_foreign_keys(self, work: Callable[[], Any], *queues: str, exchange: str = "") -> Any:
        """The result of `work`; a foreign key in the place of one of kombu's keys is renamed first."""
        try:
            return work()
        except redis.ResponseError as error:
            if _WRONG_TYPE not in str(error):
                raise
            self._set_aside_foreign_keys(*queues, exchange=exchange)
            return work()

    def _set_aside_foreign_keys(self, *queues: str, exchange: str = "") -> None:
        of_step = self._q_for_pri  # type: ignore[attr-defined]
        types = {of_step(queue, step): b"list" for queue in queues for step in self.priority_steps}
        types |= {self.unacked_key: b"hash", self.unacked_index_key: b"zset", _DEADLINES: b"zset"}
        types |= {table.format(exchange): b"set" for table in _TABLES}
        for name, expected in types.items():
            key = f"{self.global_keyprefix}{name}"
            with self.conn_or_acquire() as client:
                if client.type(key) not in (expected, b"none"):
                    client.rename(key, key + SET_ASIDE)
                    log().error(
                        "a foreign key was in the place of one of kombu's; renamed", key=key + SET_ASIDE
                    )


class Transport(kombu.transport.redis.Transport):
    Channel = Channel

    def _deliver(self, delivered: Any, queue: str | None) -> None:
        """Celery's remote control has queues and forms of its own."""
        try:
            if queue in celeryconfig.QUEUES:
                check(delivered)
            else:
                check_control(delivered)
        except Foreign as error:
            _reject(error)
        else:
            super()._deliver(delivered, queue)


def _reject(error: Exception) -> None:
    log().error("foreign message rejected; send nothing to arkline's queues by hand", error=str(error))


def register() -> None:
    """Have kombu use this transport for redis: and rediss: URLs; Flower and Celery show those names."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
