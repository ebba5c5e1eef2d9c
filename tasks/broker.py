"""Sends messages to the workers, and reads those that no worker has consumed yet.

`configured` makes the Celery application without its tasks, which `tasks.app` adds. Nothing here reads the
environment: the caller passes the settings.

A message that cannot be sent is no error: the sweep sends another one. The backlog stays in ZooKeeper and the
queues in Redis are short, so the queues can be read completely. That shows exactly which jobs still have a
message, instead of a guess from how long they wait.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import redis
from celery import Celery
from kombu import Producer
from kombu.exceptions import BatchPublishError, OperationalError  # type: ignore[attr-defined]  # old stubs

import celeryconfig
from pipeline.records import Job, Ticket
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, BatchState, JobState, Queue, Task
from tasks import transport
from tasks.logs import log
from tasks.redis_keys import OWN_TURN, client, lists_of, step_of
from tasks.transport import MAX_MESSAGE, Foreign
from zkstate.queue import fairness

_SHORT = {"max_retries": 2, "interval_start": 0.1, "socket_timeout": 1, "socket_connect_timeout": 1}
"""Without limits, kombu retries for ever while Redis is away, and an operator's command hangs. In seconds."""


AWAY_FOR = 5.0
"""Seconds for which a command or a service sends nothing after Redis did not answer."""


class Publisher(Celery):
    """A verb on a thousand jobs waits once for a Redis that is away, and not for each message."""

    _away_until = 0.0
    """When the next message may be sent, in seconds of the monotonic clock."""

    def send_task(self, *given: Any, **named: Any) -> Any:
        if time.monotonic() < self._away_until:
            raise OperationalError("Redis did not answer a moment ago")
        try:
            return super().send_task(*given, **named)
        except OperationalError:
            self._away_until = time.monotonic() + AWAY_FOR
            raise


def configured(settings: Settings, kind: type[Celery] = Celery) -> Celery:
    """A separate application on the broker of `settings`."""
    transport.register()
    app = kind(
        "arkline", set_as_current=False, control="tasks.transport:Control", events="tasks.events:Events"
    )
    app.config_from_object(celeryconfig)
    options = {**celeryconfig.broker_transport_options, "global_keyprefix": settings.broker_prefix}
    app.conf.update(broker_url=settings.broker_url, broker_transport_options=options)
    return app


@lru_cache(maxsize=8)
def publisher(settings: Settings) -> Celery:
    """The application of a command or a service: publishing gives up within seconds.

    A message that is not sent is left to the sweep. One per settings, because an application owns a pool
    of connections.
    """
    app = configured(settings, Publisher)
    app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_SHORT}
    return app


def dispatch_job(app: Celery, ticket: Ticket, priority: int = 0, *, in_turn: bool = False) -> bool:
    """Send the task of the ticket's state, followed by those of the later states as Celery's chain.

    False if Redis does not answer. `in_turn`: ahead of all jobs of others, which have more than their share.
    """
    return _send_job(app, ticket, OWN_TURN if in_turn else step_of(priority))


def dispatch_jobs(app: Celery, tickets: Sequence[tuple[Ticket, int]]) -> bool:
    """Send the messages of many jobs with their priorities, up to the first that Redis does not accept.

    In one request; if its answer is missing or an error, each message is sent again: the second one is void.
    """
    try:
        with app.producer_or_acquire() as producer, producer.batch():
            return all(_send_job(app, ticket, step_of(priority), producer) for ticket, priority in tickets)
    except BatchPublishError:
        return all(dispatch_job(app, ticket, priority) for ticket, priority in tickets)


def _send_job(app: Celery, ticket: Ticket, step: int, producer: Producer | None = None) -> bool:
    chain = _tasks_after(ticket.state)
    return _send(app, task_of(ticket).name, ticket, step, chain=chain, producer=producer)


@cache
def _tasks_after(state: str) -> tuple[dict[str, object], ...]:
    """Celery's chain: the next task is the last of the list."""
    order = JOB.working()
    following = order[order.index(JobState(state)) + 1 :]
    call: dict[str, object] = {
        "args": [],
        "kwargs": {},
        "options": {},
        "subtask_type": None,
        "immutable": False,
    }
    return tuple({"task": JOB.task(later).name, **call} for later in reversed(following))


def dispatch_batch(app: Celery, ticket: Ticket, *, in_turn: bool = False) -> bool:
    """Send the task of the batch's state; `in_turn`: ahead of all splits of others.

    A split is as urgent as the most urgent job, so that neither occupies all processes alone.
    """
    task = task_of(ticket)
    priority = step_of(0) if task.queue is Queue.SPLIT and not in_turn else OWN_TURN
    return _send(app, task.name, ticket, priority)


def dispatch_failure_callback(app: Celery, jid: str, epoch: int) -> bool:
    """Send the callback task for the job's failure in `epoch`.

    The arguments are not in the form of a ticket, because this message moves no job.
    """
    ticket = Ticket(id=jid, state=JobState.FAILED, epoch=epoch)
    return _send(app, "callback.failed", ticket, step_of(0), args=(jid, epoch))


def task_of(ticket: Ticket) -> Task:
    """The task that does the work of this ticket."""
    if fairness.is_job(ticket.id):
        return JOB.task(JobState(ticket.state))
    return BATCH.task(BatchState(ticket.state))


def task_id(ticket: Ticket) -> str:
    """The id of the Celery task for this ticket, which can be derived from the record.

    >>> task_id(Ticket(id="jid0000000012", state="downloading", epoch=5))
    'jid0000000012-5-downloading'
    """
    return f"{ticket.id}-{ticket.epoch}-{ticket.state}"


def last_task(job: Job) -> str:
    """The id of the task that works on the job, or last did; empty if unknown."""
    status = job.status
    if status.status in JOB.working():
        epoch = status.epoch - status.handed_back  # a record is handed back with its next epoch
        given = Ticket(id=job.jid, state=status.status, epoch=epoch)
        return task_id(given) if status.dispatched_at else ""
    moves = [entry for entry in job.history if entry.event]
    if len(moves) < 2 or not moves[-1].by.startswith("worker"):
        return ""
    return task_id(Ticket(id=job.jid, state=moves[-2].state, epoch=status.epoch - 1))


def _send(app: Celery, task: str, ticket: Ticket, priority: int, **options: Any) -> bool:
    given = {"args": (ticket.model_dump(),), "priority": priority, "task_id": task_id(ticket), **options}
    # what Celery would do for each message: worker processes declare the queues, and repr makes the same text
    given |= {"declare": (), "argsrepr": repr(given["args"]), "kwargsrepr": "{}"}
    try:
        app.send_task(task, **given)
    except OperationalError as error:
        log().warning(
            "message not sent; the sweep sends it again", ticket=ticket.model_dump(), error=str(error)
        )
        return False
    return True


WRITTEN_FOR = 1000
"""Milliseconds until the key of a test write expires."""

_READ = """
local items, foreign = {}, 0
for _, key in ipairs(KEYS) do
  local listed = redis.pcall('LRANGE', key, 0, -1)
  if listed.err then
    foreign = foreign + 1
  else
    for _, item in ipairs(listed) do
      if #item > tonumber(ARGV[1]) then foreign = foreign + 1 else items[#items + 1] = item end
    end
  end
end
return {foreign, items}
"""
"""Returns the items of all lists; an item that is too large, or a key that is no list, is only counted."""


@dataclass(frozen=True)
class Queued:
    """The messages that wait in Redis."""

    tickets: frozenset[tuple[str, int]]
    """(id, epoch) of every ticket."""
    foreign: int = 0
    """Messages that arkline did not send, and keys of another type in the place of a queue."""
    callbacks: frozenset[tuple[str, int]] = frozenset()
    """(JID, epoch) of every failure whose callback is to be delivered."""


def read_queues(settings: Settings) -> Queued:
    """All messages of all queues; OperationalError if Redis does not answer."""
    keys = tuple(lists_of(settings.broker_prefix, celeryconfig.QUEUES))
    try:
        foreign, items = client(settings).eval(_READ, len(keys), *keys, str(MAX_MESSAGE))
    except redis.RedisError as error:
        raise OperationalError(str(error)) from error
    tickets: set[tuple[str, int]] = set()
    callbacks: set[tuple[str, int]] = set()
    for item in items:
        try:
            if about := transport.read(item):
                (tickets if about.is_ticket else callbacks).add((about.id, about.epoch))
        except Foreign:
            foreign += 1
    return Queued(frozenset(tickets), foreign, frozenset(callbacks))


REFUSALS = (redis.ResponseError, redis.AuthenticationError)
"""Answers of Redis; to redis-py a refused password is one of the errors of a connection."""


def try_write(settings: Settings) -> None:
    """Test a write; one of REFUSALS if Redis refuses it, as a replica or by the rights of its user."""
    client(settings).set(f"{settings.broker_prefix}written", 1, px=WRITTEN_FOR)


def waiting_messages(settings: Settings, queues: Iterable[str]) -> int:
    """The number of messages in these queues; redis.RedisError if Redis does not answer."""
    return _length(settings, lists_of(settings.broker_prefix, queues))


def more_urgent(settings: Settings, queues: Iterable[str], priority: int) -> bool:
    """True if a message of a job more urgent than `priority` waits; redis.RedisError as above."""
    return _length(settings, lists_of(settings.broker_prefix, queues, range(step_of(priority)))) > 0


COUNT_ITEMS = """
local function count_items(first)
  local items = 0
  for number = first, #KEYS do
    local length = redis.pcall('LLEN', KEYS[number])
    if type(length) == 'number' then items = items + length end
  end
  return items
end
"""
"""For scripts: counts the items of the lists from KEYS[first] to the last; a key of another type has none."""

_COUNT = f"{COUNT_ITEMS}return count_items(1)"
"""One command for all lists, because each job needs three counts."""


def _length(settings: Settings, names: Iterable[str]) -> int:
    keys = tuple(names)
    return int(client(settings).eval(_COUNT, len(keys), *keys))
