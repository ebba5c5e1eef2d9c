"""Messages that are composed without Celery: a submission loads less, and a feed sends many at once.

Celery would compose the same messages: a test compares them.
"""

import json
import os
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import redis

from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, BatchState, JobState, Task
from tasks.message import compose
from tasks.queue_lists import list_of, step_of
from tasks.redis_client import client
from tasks.signing import keys_of


def send_split(settings: Settings, ticket: Ticket) -> bool:
    """Send the ticket of a new batch; False if Redis did not accept the message.

    A message whose answer was lost may be sent again: it moves the batch once.
    """
    task, step = BATCH.task(BatchState(ticket.state)), step_of(0)
    return _push(settings, {_list(settings, task, step): [_message(settings, task, ticket, step)]})


def send_jobs(settings: Settings, tickets: Sequence[tuple[Ticket, int]]) -> bool:
    """Send the tickets of jobs with their priorities, each with the chain of the tasks that follow."""
    messages: defaultdict[str, list[str]] = defaultdict(list)
    for ticket, priority in tickets:
        task, *following = tasks_from(ticket)
        step = step_of(priority)
        messages[_list(settings, task, step)].append(_message(settings, task, ticket, step, following))
    return _push(settings, messages)


def tasks_from(ticket: Ticket) -> tuple[Task, ...]:
    """The tasks of the ticket's state and of those after it, in their order."""
    order = JOB.working()
    return tuple(map(JOB.task, order[order.index(JobState(ticket.state)) :]))


def _list(settings: Settings, task: Task, step: int) -> str:
    return list_of(settings.broker_prefix, task.queue.value, step)


def _message(
    settings: Settings, task: Task, ticket: Ticket, step: int, following: Sequence[Task] | None = None
) -> str:
    message = compose(
        task.name,
        ticket.model_dump(mode="json"),
        queue=task.queue.value,
        priority=step,
        identity=str(uuid4()),
        origin=f"gen{os.getpid()}@{socket.gethostname()}",
        chain=None if following is None else [_signature(later) for later in reversed(following)],
    )
    return json.dumps(keys_of(settings).sign(message))


def _signature(task: Task) -> dict[str, Any]:
    """A task of a chain, which runs with the result of the one before."""
    return {
        "task": task.name,
        "args": [],
        "kwargs": {},
        "options": {"task_id": str(uuid4()), "reply_to": ""},
        "subtask_type": None,
        "immutable": False,
    }


def _push(settings: Settings, messages: Mapping[str, Sequence[str]]) -> bool:
    """Put the messages into their lists, in one request; False if Redis did not accept all."""
    pipeline = client(settings).pipeline(transaction=False)
    for name, items in messages.items():
        pipeline.lpush(name, *items)
    try:
        pipeline.execute()
    except redis.RedisError:
        return False
    return True
