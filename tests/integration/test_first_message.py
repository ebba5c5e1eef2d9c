"""The message of a submission, which is sent without Celery, is the one that Celery would have sent."""

import base64
import json
from typing import Any

from pydantic import SecretStr

from entrypoints.stack.ports import free_ports
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BatchState
from tasks.broker import read_queues
from tasks.dispatch import dispatch_batch
from tasks.first_message import send_split
from tasks.publisher import publisher
from tasks.queue_lists import list_of, step_of
from tasks.redis_client import client

TICKET = Ticket(id="bid0000000007", state=BatchState.PENDING, epoch=3)
DIFFERENT = {"id", "root_id", "origin", "correlation_id", "reply_to", "delivery_tag"}
"""Parts of a message that name the sender, or the message."""


def split_list(settings: Settings) -> str:
    return list_of(settings.broker_prefix, "split", step_of(0))


def sent(settings: Settings) -> dict[str, Any]:
    """The only message of a new batch, without what no two messages share."""
    (raw,) = client(settings).lrange(split_list(settings), 0, -1)
    message: dict[str, Any] = json.loads(raw)
    message["body"] = json.loads(base64.b64decode(message["body"]))
    for part in ("headers", "properties"):
        message[part] = {name: None if name in DIFFERENT else value for name, value in message[part].items()}
    client(settings).delete(split_list(settings))
    return message


def test_the_message_is_that_of_celery(settings: Settings) -> None:
    assert dispatch_batch(publisher(settings), TICKET)
    of_celery = sent(settings)

    assert send_split(settings, TICKET)
    assert sent(settings) == of_celery


def test_the_message_is_signed_with_the_key_of_the_site(settings: Settings) -> None:
    signing = settings.model_copy(update={"message_key": SecretStr("a key of the whole site")})

    assert send_split(signing, TICKET)

    queued = read_queues(signing)
    assert queued.tickets == {(TICKET.id, TICKET.epoch)}
    assert queued.foreign == 0


def test_the_message_goes_to_the_database_in_the_address(settings: Settings) -> None:
    other = settings.model_copy(update={"broker_url": settings.broker_url.removesuffix("/0") + "/3"})

    assert send_split(other, TICKET)

    assert read_queues(other).tickets == {(TICKET.id, TICKET.epoch)}
    assert not read_queues(settings).tickets


def test_a_foreign_key_in_the_place_of_the_queue_is_left_to_celery(settings: Settings) -> None:
    client(settings).set(split_list(settings), "foreign")

    assert not send_split(settings, TICKET)
    assert dispatch_batch(publisher(settings), TICKET)


def test_a_redis_that_does_not_answer_takes_no_message(settings: Settings) -> None:
    (port,) = free_ports(1)
    absent = settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{port}/0"})

    assert not send_split(absent, TICKET)


def test_a_user_logs_in_with_the_password_of_the_address(settings: Settings) -> None:
    server = settings.broker_url.removeprefix("redis://")
    client(settings).acl_setuser(
        "desk", enabled=True, passwords=["+pass#word"], keys=["*"], commands=["+lpush"]
    )
    try:
        known = settings.model_copy(update={"broker_url": f"redis://desk:pass%23word@{server}"})
        stranger = settings.model_copy(update={"broker_url": f"redis://desk:guess@{server}"})

        assert send_split(known, TICKET)
        assert read_queues(settings).tickets == {(TICKET.id, TICKET.epoch)}
        assert not send_split(stranger, TICKET)
    finally:
        client(settings).acl_deluser("desk")
