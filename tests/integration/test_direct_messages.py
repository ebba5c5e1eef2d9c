"""The messages that are sent without Celery are those that Celery would have sent."""

import base64
import json
from typing import Any

import pytest
from pydantic import SecretStr

from entrypoints.stack.ports import free_ports
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, JobState
from tasks.after_move import feed
from tasks.broker import read_queues
from tasks.direct_messages import send_jobs, send_split
from tasks.dispatch import dispatch_batch, dispatch_job
from tasks.publisher import publisher
from tasks.queue_lists import list_of, step_of
from tasks.redis_client import client
from tests.support import planting
from zkstate.session import Session

TICKET = Ticket(id="bid0000000007", state=BatchState.PENDING, epoch=3)
DIFFERENT = {"id", "root_id", "origin", "correlation_id", "reply_to", "delivery_tag", "task_id"}
"""Parts of a message that name the sender, or the message."""


def split_list(settings: Settings) -> str:
    return list_of(settings.broker_prefix, "split", step_of(0))


def sent(settings: Settings, name: str) -> list[dict[str, Any]]:
    """The messages that a list had, the oldest first, without what no two messages share."""
    raw = client(settings).lrange(name, 0, -1)
    client(settings).delete(name)
    return [without_names(json.loads(item)) for item in reversed(raw)]


def without_names(message: dict[str, Any]) -> dict[str, Any]:
    body = json.loads(base64.b64decode(message["body"]))
    for signature in body[2]["chain"] or ():
        signature["options"] = dict.fromkeys(signature["options"])
    parts = {
        part: {name: None if name in DIFFERENT else value for name, value in message[part].items()}
        for part in ("headers", "properties")
    }
    return {**message, "body": body, **parts}


def test_the_message_is_that_of_celery(settings: Settings) -> None:
    assert dispatch_batch(publisher(settings), TICKET)
    of_celery = sent(settings, split_list(settings))

    assert send_split(settings, TICKET)
    assert sent(settings, split_list(settings)) == of_celery


@pytest.mark.parametrize("state", JOB.working())
def test_the_messages_of_jobs_are_those_of_celery(settings: Settings, state: JobState) -> None:
    tickets = [(Ticket(id=f"jid000000000{number}", state=state, epoch=number), 5) for number in (1, 2)]
    own = list_of(settings.broker_prefix, JOB.task(state).queue.value, step_of(5))
    assert all(dispatch_job(publisher(settings), ticket, priority) for ticket, priority in tickets)
    of_celery = sent(settings, own)

    assert send_jobs(settings, tickets)
    assert sent(settings, own) == of_celery
    assert len(of_celery) == 2


def test_the_messages_of_jobs_go_to_the_lists_of_their_priorities(settings: Settings) -> None:
    urgent = Ticket(id="jid0000000001", state=JobState.PENDING, epoch=1)
    later = Ticket(id="jid0000000002", state=JobState.PENDING, epoch=1)

    assert send_jobs(settings, [(later, 90), (urgent, 0)])

    for ticket, priority in ((urgent, 0), (later, 90)):
        (message,) = sent(settings, list_of(settings.broker_prefix, "io", step_of(priority)))
        assert message["body"][0] == [ticket.model_dump()]


def test_without_any_ticket_nothing_is_sent(settings: Settings) -> None:
    assert send_jobs(settings, [])


def test_a_foreign_key_in_the_place_of_a_list_is_left_to_celery_for_all_jobs(
    session: Session, settings: Settings
) -> None:
    _, jids = planting.split_batch(session, 3)
    client(settings).set(list_of(settings.broker_prefix, "io", step_of(5)), "foreign")

    assert feed(publisher(settings), session, settings)

    assert {jid for jid, _ in read_queues(settings).tickets} == set(jids)


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
