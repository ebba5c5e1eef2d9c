"""The form of a message as arkline has Celery write it to Redis: whatever else is in a queue is foreign.

A message is a hint, which anybody may send who can write to Redis. It names a task of arkline, and a job or a
batch by a ticket; the record decides. Celery's other orders to a worker (a limit of time, a delay, tasks to
call at the end or after an error) are never sent, so a message with one is foreign.
"""

import base64
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

import celeryconfig
from pipeline.states import BATCH, JOB

MAX_MESSAGE = 262_144
"""Bytes; the largest message of arkline, a chain of seven tasks, has some 5,000."""


class Foreign(ValueError):
    """The bytes are no message that a worker of arkline could have been sent."""


Arguments = TypeVar("Arguments")
P = TypeVar("P")

Text = Annotated[str, StringConstraints(max_length=1000)]
Nothing = Annotated[dict[str, Any], Field(max_length=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Headers(_Part):
    """Of Celery's second protocol; others are ignored, such as the signature of 0.2.1."""

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
"""Each task's arguments, none with a name, and what follows."""


def check(message: object) -> None:
    """Foreign unless it is a message of arkline; `message`: what kombu has read from Redis."""
    _arguments(_parsed(_ENVELOPE.validate_python, message, "not in Celery's form"))


def ticket_in(raw: bytes) -> tuple[str, int] | None:
    """(id, epoch) of the ticket in an item of a queue; None if its task needs none; Foreign as above."""
    if len(raw) > MAX_MESSAGE:
        raise Foreign(f"{len(raw):,} bytes, more than {MAX_MESSAGE:,}")
    first, *_ = (*_arguments(_parsed(_ENVELOPE.validate_json, raw, "not in Celery's form")), None)
    return (first.id, first.epoch) if isinstance(first, _Ticket) else None


def _arguments(envelope: _Envelope) -> tuple[Any, ...]:
    task = envelope.headers.task
    if task not in _BODIES:
        raise Foreign(f"no task of arkline is named {task[:100]!r}")
    positional, _, _ = _parsed(_BODIES[task].validate_json, _decoded(envelope.body), f"no call of {task}")
    arguments: tuple[Any, ...] = positional
    return arguments


def _parsed(validate: Callable[[Any], P], content: object, problem: str) -> P:
    """The first fault is named, without the content: a log line is not as long as a sender wants it to be."""
    try:
        return validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:100]
        raise Foreign(f"{problem}: {place or 'message'}: {first['msg'][:200]}") from None
    except RecursionError:
        raise Foreign(f"{problem}: nested too deeply") from None


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise Foreign("the body is not base64") from error


def check_control(message: object) -> None:
    """Foreign unless it has the form of a remote command, of an answer to one, or of events.

    Nor may a command select workers by a pattern, whose comparison may take for ever.
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
