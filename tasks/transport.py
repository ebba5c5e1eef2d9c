"""kombu's Redis transport, in which a foreign message or key only costs a line of the log.

A message is a hint that anyone with write access to Redis can send. It names a task of arkline, and a job or
a batch by a ticket; the record decides. Celery's other instructions to a worker (time limits, delays, tasks
to call on success or error) are never sent, so a message with one is foreign. kombu's own transport passes
everything in a list to Celery: an item that is not a message, or a key of another type in place of a list,
ends the worker or makes it reconnect for ever.

Of Celery's remote commands, a worker only obeys queries and those for events. Otherwise, anyone with write
access to Redis could end every worker with one message (`shutdown`), or its pool, stop its consumption
(`cancel_consumer`), have messages dropped as revoked (`hello`), or read its settings (`conf`, `report`).
"""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import celery.app.control
import kombu.transport.redis
import redis
from celery.worker.control import Panel
from kombu import Producer, pidbox
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.virtual import Empty
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

import celeryconfig
from pipeline.errors import first_fault
from pipeline.states import BATCH, JOB
from tasks.logs import log
from tasks.redis_keys import lists_of

MAX_MESSAGE = 262_144
"""Bytes; the largest message of arkline, a chain of seven tasks, has some 5,000."""


FAULT_LIMIT = 300
"""Characters of a fault in the log."""


class Foreign(ValueError):
    """The bytes are no message that a worker of arkline could have been sent."""


Arguments = TypeVar("Arguments")
P = TypeVar("P")

Text = Annotated[str, StringConstraints(max_length=1000)]
Nothing = Annotated[dict[str, Any], Field(max_length=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Headers(_Part):
    """Headers of Celery's second protocol; others are ignored, such as the signature of release 0.2.1."""

    task: Text
    id: Text
    lang: Text | None = None
    shadow: None = None
    eta: None = None
    expires: Text | None = None
    group: None = None
    group_index: None = None
    retries: Literal[0] = 0
    timelimit: Annotated[list[None], Field(max_length=2)] | None = None
    root_id: Text | None = None
    parent_id: Text | None = None
    argsrepr: str | None = None
    kwargsrepr: str | None = None
    origin: Text | None = None
    ignore_result: bool | None = None
    replaced_task_nesting: Literal[0] = 0
    stamped_headers: None = None
    stamps: Nothing | None = None
    compression: None = None


class _Properties(_Part):
    delivery_tag: Text
    delivery_info: dict[str, Text | int | bool | None]
    body_encoding: Literal["base64"]
    correlation_id: Text | None = None
    reply_to: Text | None = None
    priority: int = 0


class _Envelope(_Part):
    body: str = Field(max_length=MAX_MESSAGE)
    content_type: Literal["application/json"] = Field(alias="content-type")
    content_encoding: Literal["utf-8"] = Field(alias="content-encoding")
    headers: _Headers
    properties: _Properties


class _Options(_Part):
    model_config = ConfigDict(extra="forbid")
    task_id: Text | None = None
    reply_to: Text | None = None


class _Following(_Part):  # type: ignore[no-redef]  # pydantic's plugin for mypy has a parameter kwargs
    """A task of a job's chain, called with the ticket that the task before returns."""

    task: Annotated[str, StringConstraints(pattern=r"^job\.[a-z-]+$", max_length=100)]
    args: Annotated[list[Any], Field(max_length=0)]
    kwargs: Nothing
    options: _Options
    immutable: Literal[False] = False
    subtask_type: None = None


class _Embedded(_Part):
    """What Celery does after the task."""

    callbacks: None = None
    errbacks: None = None
    chord: None = None
    chain: Annotated[list[_Following], Field(max_length=len(JOB.tasks()))] | None = None


Name = Annotated[str, StringConstraints(pattern="^[bj]id[0-9]{10,15}$")]


class _Ticket(_Part):
    id: Name
    state: Text
    epoch: int


Body = tuple[Arguments, Nothing, _Embedded]

_ENVELOPE = TypeAdapter(_Envelope)
_OF_TICKET = TypeAdapter(Body[tuple[_Ticket]])
_BODIES: dict[str, TypeAdapter[Body[Any]]] = {
    **{task.name: _OF_TICKET for task in (*JOB.tasks(), *BATCH.tasks())},
    "callback.failed": TypeAdapter(Body[tuple[Name, int]]),
    **{str(entry["task"]): TypeAdapter(Body[tuple[()]]) for entry in celeryconfig.beat_schedule.values()},
}
"""Task -> its positional arguments, no keyword arguments, and the tasks that follow."""


def check(message: object) -> None:
    """Raise Foreign unless `message`, as kombu read it from Redis, is a message of arkline."""
    _arguments(_parsed(_ENVELOPE.validate_python, message, "not in Celery's form"))


class About(NamedTuple):
    """What a message is about: a job or a batch in an epoch."""

    id: str
    epoch: int
    is_ticket: bool
    """False for the callback of a failed job."""


def read(raw: bytes) -> About | None:
    """What a queue item is about; None for scheduled work. Foreign as in `check`."""
    if len(raw) > MAX_MESSAGE:
        raise Foreign(f"{len(raw):,} bytes, more than {MAX_MESSAGE:,}")
    match _arguments(_parsed(_ENVELOPE.validate_json, raw, "not in Celery's form")):
        case (_Ticket() as ticket,):
            return About(ticket.id, ticket.epoch, is_ticket=True)
        case (str() as jid, int() as epoch):
            return About(jid, epoch, is_ticket=False)
        case _:
            return None


def _arguments(envelope: _Envelope) -> tuple[Any, ...]:
    task = envelope.headers.task
    if task not in _BODIES:
        raise Foreign(f"no task of arkline is named {task[:100]!r}")
    positional, _, _ = _parsed(_BODIES[task].validate_json, _decoded(envelope.body), f"no call of {task}")
    arguments: tuple[Any, ...] = positional
    return arguments


def _parsed(validate: Callable[[Any], P], content: object, problem: str) -> P:
    """Foreign names the first fault without the content, so that a sender cannot make a log line long."""
    try:
        return validate(content)
    except ValidationError as error:
        raise Foreign(f"{problem}: {first_fault(error, 'message')[:FAULT_LIMIT]}") from None
    except RecursionError:
        raise Foreign(f"{problem}: nested too deeply") from None


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise Foreign("the body is not base64") from error


def check_control(message: object) -> None:
    """Raise Foreign unless `message` has the form of a remote command, of an answer to one, or of events.

    Nor may a command select workers by a pattern, as matching it may take for ever.
    """
    match message:
        case {
            "body": str(body),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {},
            "properties": {"delivery_tag": str(), "delivery_info": {}, "body_encoding": "base64"},
        }:
            try:
                content = json.loads(_decoded(body))
            except (ValueError, RecursionError) as error:
                raise Foreign("the body is not JSON in base64") from error
        case _:
            raise Foreign("not in Celery's form")
    if isinstance(content, dict) and (content.get("pattern") or content.get("matcher")):
        raise Foreign("a remote command with a pattern")


SET_ASIDE = ".foreign"
"""Suffix given to a key of another type in place of one of kombu's: foreign data are never deleted."""

_EXCHANGES = (*celeryconfig.QUEUES, "celery.pidbox", "reply.celery.pidbox", "celeryev")

_TYPES = {
    **dict.fromkeys(lists_of("", celeryconfig.QUEUES), b"list"),
    "unacked": b"hash",
    "unacked_index": b"zset",
    "_kombu.binding_deadlines": b"zset",
    **{f"_kombu.binding.{name}": b"set" for name in _EXCHANGES},
    **{f"_kombu.binding_permanent.{name}": b"set" for name in _EXCHANGES},
}
"""kombu's keys, without the deployment's prefix."""

_BINDING_PARTS = 3
"""Parts of an entry in the table of an exchange: routing key, pattern and queue."""


class _Sent(threading.local):
    receivers = 0
    """The number of clients to which Redis delivered this thread's last broadcast."""


_sent = _Sent()


def receivers() -> int:
    """The number of workers that got this thread's last command."""
    return _sent.receivers


def _reject(error: Exception) -> None:
    log().error("foreign message rejected; send nothing to arkline's queues by hand", error=str(error))


def _among_foreign_keys(method: Any) -> Any:
    """kombu's method, retried after a foreign key in place of one of its own was renamed."""

    @wraps(method)
    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            getattr(self, "channel", self).set_aside_foreign_keys()
            return method(self, *arguments, **options)

    return called


class QoS(kombu.transport.redis.QoS):
    """Unacknowledged messages: their keys may be foreign, or have foreign values."""

    channel: "Channel"
    append = _among_foreign_keys(kombu.transport.redis.QoS.append)
    ack = _among_foreign_keys(kombu.transport.redis.QoS.ack)
    reject = _among_foreign_keys(kombu.transport.redis.QoS.reject)
    restore_visible = _among_foreign_keys(kombu.transport.redis.QoS.restore_visible)

    @_among_foreign_keys
    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client, leftmost)
        except (ValueError, TypeError, RecursionError) as error:  # no JSON, or not of kombu's three parts
            _reject(error)
            with self.channel.conn_or_acquire() as answering:
                answering.zrem(self.unacked_index_key, tag)
                answering.hdel(self.unacked_key, tag)


class Channel(kombu.transport.redis.Channel):
    QoS = QoS
    _client_of_pool: Any = None

    def set_aside_foreign_keys(self) -> None:
        with self.conn_or_acquire() as client:
            for name, expected in _TYPES.items():
                key = f"{self.global_keyprefix}{name}"
                if client.type(key) not in (expected, b"none"):
                    client.rename(key, key + SET_ASIDE)
                    log().error(
                        "a foreign key was in the place of one of kombu's; renamed", key=key + SET_ASIDE
                    )

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """kombu's client, which is kept as long as its pool: to make one costs more than most commands."""
        if client is None and self._client_of_pool and self._client_of_pool.connection_pool is self.pool:
            client = self._client_of_pool
        with super().conn_or_acquire(client) as answering:
            if answering is not client:
                answering.set_response_callback("PUBLISH", _note_receivers)
                self._client_of_pool = answering
            yield answering

    queue_declare = _among_foreign_keys(kombu.transport.redis.Channel.queue_declare)

    @_among_foreign_keys
    def basic_publish(self, message: Any, *arguments: Any, **options: Any) -> Any:
        # a copy: kombu encodes the body in place
        return super().basic_publish(dict(message), *arguments, **options)

    @_among_foreign_keys
    def queue_bind(self, queue: Any, *arguments: Any, **options: Any) -> None:
        try:
            super().queue_bind(queue, *arguments, **options)
        except redis.ResponseError:
            self.state.queue_bindings_delete(queue)  # entered before Redis refused it
            raise

    @_among_foreign_keys
    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """The queues of an exchange; skips entries that kombu did not write."""
        return [entry for entry in super().get_table(exchange) if len(entry) == _BINDING_PARTS]

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # not in its stubs
        except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or a number of thousands of digits
            _reject(error)
            return True
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self.set_aside_foreign_keys()
            raise Empty from error


class Transport(kombu.transport.redis.Transport):
    Channel = Channel

    def on_readable(self, *arguments: Any) -> None:
        """Reject a broadcast that is nested too deeply; kombu rejects everything else that is not JSON."""
        try:
            super().on_readable(*arguments)
        except RecursionError as error:
            _reject(error)

    def drain_events(self, *arguments: Any, **options: Any) -> None:
        try:
            super().drain_events(*arguments, **options)
        except RecursionError as error:
            _reject(error)

    def _deliver(self, delivered: Any, queue: str | None) -> None:
        """Deliver a valid message; those of Celery's remote control have their own queues and forms."""
        try:
            if queue in celeryconfig.QUEUES:
                check(delivered)
            else:
                check_control(delivered)
        except Foreign as error:
            _reject(error)
        else:
            super()._deliver(delivered, queue)


def register() -> None:
    """Have kombu use this transport for redis: and rediss: URLs; Flower and Celery show those names."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"


ALLOWED = frozenset(
    {
        "active",
        "active_queues",
        "disable_events",
        "enable_events",
        "heartbeat",
        "ping",
        "query_task",
        "registered",
        "reserved",
        "revoked",
        "scheduled",
        "stats",
    }
)


def restrict_remote_control() -> None:
    """Refuse all of Celery's commands that are not ALLOWED, in this process."""
    for name in set(Panel.data) - ALLOWED:
        Panel.data[name] = partial(_refuse, name)


def _refuse(name: str, *_: object, **__: object) -> dict[str, str]:
    log().warning("a remote command was refused", command=name)
    return {"error": f"{name} is refused: use arkline's hold, fail or drain, or the supervisor of the worker"}


def _note_receivers(answer: int, **_: object) -> int:
    _sent.receivers += answer
    return answer


class Mailbox(pidbox.Mailbox):
    """Waits for the answers of exactly those workers that received the command, over one connection.

    Celery's own mailbox waits for a fixed time: too short for a worker on a busy machine, and too long once
    all have answered. Redis reports how many clients received a message. And it holds a connection of the
    pool while it waits for another one to send over: as many callers as the pool has connections would wait
    for each other for ever.
    """

    @contextmanager
    def producer_or_acquire(
        self, producer: Producer | None = None, channel: Any = None
    ) -> Iterator[Producer]:
        yield producer or Producer(channel, auto_declare=False)

    def _collect(
        self,
        ticket: str,
        limit: int | None = None,
        timeout: float = 1,
        callback: Any = None,
        channel: Any = None,
        accept: Any = None,
    ) -> Any:
        if not _sent.receivers:
            return []
        expected = _sent.receivers if limit is None else min(limit, _sent.receivers)
        return super()._collect(ticket, expected, timeout, callback, channel, accept)


class Control(celery.app.control.Control):
    Mailbox = Mailbox

    def broadcast(self, *args: Any, **options: Any) -> Any:
        _sent.receivers = 0
        return super().broadcast(*args, **options)
