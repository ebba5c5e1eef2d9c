"""The form of a message as Celery writes it to Redis: whatever else is in a queue is foreign."""

import base64
import json
from typing import Any

MAX_MESSAGE = 262_144
"""Bytes; the largest message of arkline, a chain of seven tasks, has some 5,000."""


class Foreign(ValueError):
    """The bytes are no message that a worker of arkline could have been sent."""


def read_envelope(raw: bytes) -> dict[str, Any]:
    """The message in `raw`; Foreign if it is none."""
    if len(raw) > MAX_MESSAGE:
        raise Foreign(f"{len(raw):,} bytes, more than {MAX_MESSAGE:,}")
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Foreign("not JSON") from error
    return checked(message)


def checked(message: object) -> dict[str, Any]:
    """The message, if it has the parts on which kombu and Celery rely; Foreign otherwise."""
    match message:
        case {
            "body": str(body),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"task": str(), "id": str()},
            "properties": {"delivery_tag": str(), "delivery_info": {}, "body_encoding": "base64"},
        } if isinstance(message, dict):
            arguments(body)
            return message
        case _:
            raise Foreign("not in Celery's form")


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
            content = _content(body)
        case _:
            raise Foreign("not in Celery's form")
    if isinstance(content, dict) and (content.get("pattern") or content.get("matcher")):
        raise Foreign("a remote command with a pattern")


def arguments(body: str) -> list[Any]:
    """The positional arguments of the task in the body of a message; Foreign if there are none."""
    match _content(body):
        case [list(positional), dict(), dict()]:
            return positional
        case _:
            raise Foreign("the body holds no arguments of a task")


def _content(body: str) -> Any:
    try:
        return json.loads(base64.b64decode(body, validate=True))
    except (ValueError, RecursionError) as error:
        raise Foreign("the body is not JSON in base64") from error
