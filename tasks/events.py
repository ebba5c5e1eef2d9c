"""Celery's task events for jobs and batches, sent by the process that does their work.

A process carries its job through several tasks, of which Celery's worker only knows the first. So the worker
reports that it received a message, and the pool process reports the rest: the start and the outcome of each
task. Nothing is sent while nobody listens.
"""

import threading
import time
from collections import deque
from functools import cached_property
from typing import Any

import celery.app.events
import redis
from celery import Celery, states
from celery.app.trace import trace_ok_t
from celery.events import EventDispatcher
from kombu.exceptions import OperationalError

from pipeline.records import Batch, Job, Ticket
from tasks.broker import task_id, task_of
from tasks.logs import log

PAUSE = 0.25
"""Seconds from an event until it is sent, together with later ones: most states of a small job end sooner."""

MOST = 1000
"""Maximum events that wait to be sent; the oldest are dropped while Redis does not answer."""

Message = dict[str, Any]
"""The parts of a message that Celery's tracer gets: headers, arguments and chain."""


def is_listened(dispatcher: Any) -> bool:
    """Whether Flower or another listener has asked the worker of this dispatcher for the events of tasks."""
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))


class TaskEvents:
    """The task events of one process. A thread sends them, so that the work never waits for Redis.

    Events that Redis does not accept are lost.
    """

    def __init__(self, app: Celery, worker: str) -> None:
        """`worker`: the name under which Celery knows the worker of this process."""
        self._app = app
        self._worker = worker
        self._events: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MOST)
        self._noted = threading.Event()
        self._sending = threading.Lock()
        threading.Thread(target=self._send, name="task events", daemon=True).start()

    def received(self, request: Message) -> None:
        """Note a task that starts without a message."""
        known = {key: request.get(key) for key in ("root_id", "parent_id", "retries", "eta", "expires")}
        self._note("task-received", request["id"], name=request["task"], args="", kwargs="{}", **known)

    def started(self, uuid: str, record: Job | Batch | None = None) -> None:
        """Note the start of a task; again once the `record` is known, to show what the task works on."""
        self._note("task-started", uuid, **({"args": _shown(record)} if record else {}))

    def ended(self, uuid: str, name: str, outcome: trace_ok_t) -> None:
        """`outcome`: as Celery's tracer returns it; `name`: for listeners that missed the start."""
        if outcome.info is None:
            self._note("task-succeeded", uuid, name=name, runtime=outcome.runtime, result=outcome.retstr)
            return
        kind = "task-retried" if outcome.info.state == states.RETRY else "task-failed"
        self._note(kind, uuid, name=name, exception=str(outcome.info.retval), traceback=None)

    def stopped(self, uuid: str, name: str) -> None:
        """Send at once that the process ends before its task does; the record was handed back."""
        self._note("task-retried", uuid, name=name, exception="the worker was stopped", traceback=None)
        self.flush()

    def lost(self, ticket: Ticket) -> None:
        """Note that the worker of this ticket's task has vanished; nothing else reports the task's end."""
        name = task_of(ticket).name
        self._note("task-failed", task_id(ticket), name=name, exception="the worker was lost")

    def _note(self, kind: str, uuid: str, **fields: Any) -> None:
        self._events.append((kind, {"uuid": uuid, "timestamp": time.time(), **fields}))
        self._noted.set()

    def _send(self) -> None:
        while True:
            self._noted.wait()
            time.sleep(PAUSE)
            self._noted.clear()
            self.flush()

    def flush(self) -> None:
        """Send the events noted so far, as one message."""
        with self._sending:
            try:
                dispatcher = self._dispatcher
                while self._events:
                    kind, fields = self._events.popleft()
                    dispatcher.send(kind, **fields)
                dispatcher.flush()
            except (OperationalError, redis.RedisError) as error:
                log().debug("events lost: Redis does not answer", error=str(error))
                del self._dispatcher  # with the events in its buffer

    @cached_property
    def _dispatcher(self) -> Any:
        return self._app.events.Dispatcher(
            self._app.connection_for_write(),
            hostname=self._worker,
            buffer_while_offline=False,
            buffer_group={"task"},
            buffer_limit=MOST,
        )


class Dispatcher(EventDispatcher):
    """Sends no event again: Celery retries a worker's heartbeat for ever, and a worker that waits for Redis
    does not notice that it is told to stop.
    """

    def send(self, *given: Any, **named: Any) -> None:
        super().send(*given, **{**named, "retry": False})


class Events(celery.app.events.Events):
    dispatcher_cls = "tasks.events:Dispatcher"


def _shown(record: Job | Batch) -> str:
    """Shown in place of the arguments, for people who look at tasks."""
    names = (record.jid, record.bid) if isinstance(record, Job) else (record.bid,)
    return " ".join((*names, record.profile_name, str(record.status.status)))
