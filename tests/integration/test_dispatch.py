"""Tickets become messages of Celery: the chain of a job's tasks, in the list of its priority."""

import base64
import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.signals import before_task_publish

import celeryconfig
from entrypoints.stack.child import free_ports
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, JobState
from tasks.after_move import feed
from tasks.broker import (
    AWAY_FOR,
    configured,
    dispatch_batch,
    dispatch_job,
    dispatch_jobs,
    publisher,
    read_queues,
    task_id,
)
from tasks.redis_keys import client, list_of, step_of
from tests.servers import redis as redis_servers
from tests.support import planting
from tests.support.polling import eventually
from zkstate.connection.session import Session

SPLIT = Ticket(id="bid0000000007", state=BatchState.PENDING, epoch=3)
FIRST = Ticket(id="jid0000000001", state=JobState.PENDING, epoch=1)
SECOND = Ticket(id="jid0000000002", state=JobState.PENDING, epoch=1)


def sent(settings: Settings, queue: str, step: int) -> tuple[str, Any]:
    """The task and the body of the only message of a list."""
    (raw,) = client(settings).lrange(list_of(settings.broker_prefix, queue, step), 0, -1)
    message = json.loads(raw)
    return message["headers"]["task"], json.loads(base64.b64decode(message["body"]))


@pytest.mark.parametrize("name", celeryconfig.beat_schedule)
def test_scheduled_work_is_done_although_the_clock_of_its_beat_is_a_minute_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    beat = configured(settings)
    entry: Any = celeryconfig.beat_schedule[name]
    behind = datetime.now(UTC) - timedelta(minutes=1)
    monkeypatch.setattr(beat, "now", lambda: behind)

    beat.send_task(entry["task"], **entry["options"])

    queue = beat.amqp.router.route({}, entry["task"])["queue"].name
    (raw,) = client(settings).lrange(list_of(settings.broker_prefix, queue, 0), 0, -1)
    end = datetime.fromisoformat(json.loads(raw)["headers"]["expires"])
    assert datetime.now(UTC) < end


@pytest.mark.parametrize("state", JOB.working())
def test_a_ticket_of_a_job_begins_the_chain_of_the_tasks_from_its_state_to_the_last(
    settings: Settings, state: JobState
) -> None:
    ticket = FIRST.model_copy(update={"state": state})
    tasks = [JOB.task(later).name for later in JOB.working()[JOB.working().index(state) :]]

    assert dispatch_job(publisher(settings), ticket, 5)

    task, (arguments, _, embedded) = sent(settings, JOB.task(state).queue.value, step_of(5))
    following = [signature["task"] for signature in reversed(embedded["chain"] or ())]
    assert [task, *following] == tasks
    assert arguments == [ticket.model_dump()]


def test_the_ticket_of_a_batch_calls_its_task_alone(settings: Settings) -> None:
    assert dispatch_batch(publisher(settings), SPLIT)

    task, (arguments, _, embedded) = sent(settings, "split", step_of(0))
    assert (task, arguments, embedded["chain"]) == ("batch.split", [SPLIT.model_dump()], None)


def test_the_messages_of_jobs_go_to_the_lists_of_their_priorities(settings: Settings) -> None:
    assert dispatch_jobs(publisher(settings), [(SECOND, 90), (FIRST, 0)])

    for ticket, priority in ((FIRST, 0), (SECOND, 90)):
        _, (arguments, _, _) = sent(settings, "io", step_of(priority))
        assert arguments == [ticket.model_dump()]


def test_a_foreign_key_in_the_place_of_a_list_keeps_no_job_from_being_fed(
    session: Session, settings: Settings
) -> None:
    _, jids = planting.split_batch(session, 3)
    client(settings).set(list_of(settings.broker_prefix, "io", step_of(5)), "foreign")

    assert feed(publisher(settings), session, settings)

    assert {jid for jid, _ in read_queues(settings).tickets} == set(jids)


def test_a_list_that_becomes_foreign_after_a_feed_keeps_no_job_from_the_next_one(settings: Settings) -> None:
    app = publisher(settings)
    assert dispatch_jobs(app, [(FIRST, 0)])
    client(settings).set(list_of(settings.broker_prefix, "io", step_of(90)), "foreign")

    assert dispatch_jobs(app, [(SECOND, 90)])

    assert read_queues(settings).tickets == {(FIRST.id, 1), (SECOND.id, 1)}


def test_a_message_goes_to_the_database_in_the_address(settings: Settings) -> None:
    other = settings.model_copy(update={"broker_url": settings.broker_url.removesuffix("/0") + "/3"})

    assert dispatch_batch(publisher(other), SPLIT)

    assert read_queues(other).tickets == {(SPLIT.id, SPLIT.epoch)}
    assert not read_queues(settings).tickets


@pytest.fixture
def composed() -> Iterator[list[str]]:
    """The ids of the tasks whose messages were composed."""
    ids: list[str] = []

    def note(headers: dict[str, Any], **_: object) -> None:
        ids.append(headers["id"])

    before_task_publish.connect(note)
    yield ids
    before_task_publish.disconnect(note)


def test_a_redis_that_is_away_is_asked_once_for_all_jobs_of_a_feed(
    settings: Settings, composed: list[str]
) -> None:
    (port,) = free_ports(1)
    absent = publisher(settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{port}/0"}))

    assert not dispatch_jobs(absent, [(FIRST, 5), (SECOND, 5)])

    assert composed == [task_id(FIRST)]


def test_a_redis_that_hangs_is_asked_once_by_a_verb_on_many_jobs_and_later_again(
    settings: Settings, tmp_path: Path, redis_server: object, composed: list[str]
) -> None:
    with redis_servers.running(tmp_path / "redis") as server:
        app = publisher(settings.model_copy(update={"broker_url": server.url}))
        server.process.send_signal(signal.SIGSTOP)

        assert not any(dispatch_job(app, FIRST, 5) for _ in range(100))

        assert composed == [task_id(FIRST)]
        server.process.send_signal(signal.SIGCONT)
        eventually(lambda: dispatch_job(app, FIRST, 5), AWAY_FOR + 20)


def test_the_messages_of_a_feed_are_one_request(settings: Settings) -> None:
    own, app = client(settings), publisher(settings)
    tickets = [(FIRST.model_copy(update={"id": f"jid{number:010}"}), 5) for number in range(50)]
    assert dispatch_jobs(app, tickets[:1])  # connects
    before = own.info("stats")["total_reads_processed"]

    assert dispatch_jobs(app, tickets[1:])

    assert own.info("stats")["total_reads_processed"] - before < len(tickets) // 2
    assert len(read_queues(settings).tickets) == len(tickets)


def test_a_user_logs_in_with_the_password_of_the_address(settings: Settings) -> None:
    server = settings.broker_url.removeprefix("redis://")
    client(settings).acl_setuser(
        "desk", enabled=True, passwords=["+pass#word"], keys=["*"], commands=["+@all"]
    )
    try:
        known = settings.model_copy(update={"broker_url": f"redis://desk:pass%23word@{server}"})
        stranger = settings.model_copy(update={"broker_url": f"redis://desk:guess@{server}"})

        assert dispatch_batch(publisher(known), SPLIT)
        assert read_queues(settings).tickets == {(SPLIT.id, SPLIT.epoch)}
        assert not dispatch_batch(publisher(stranger), SPLIT)
    finally:
        client(settings).acl_deluser("desk")
