"""The Celery task of one state, and of the later states through which the same process carries its job.

Each state's work is a run of its own task, with its own id, signals and outcome. A message starts the first
one. If its work has moved the job and this process holds the attempt at the next state, that state's task
follows here, run by Celery's own tracer in the order of a chain: one task ends before the next one begins.
"""

import logging
from typing import TYPE_CHECKING, Any

import celery.worker.request
from celery import Task, current_task
from celery.app.task import Context
from celery.signals import after_task_publish, before_task_publish

from pipeline.records import Batch, Job, Ticket
from tasks.broker import task_id, task_of
from tasks.events import Message, is_listened
from zkstate.record import record

if TYPE_CHECKING:
    from tasks.worker_context import WorkerContext


class StateFailed(Exception):
    """The work failed, as the record says: Celery's outcome of the task.

    It is not in the task's `throws`: what is expected there is no error to Sentry and OpenTelemetry.
    """


def log_no_stack() -> None:
    """Keep Celery from logging each StateFailed with a stack trace: tasks.run has logged the failure."""
    logging.getLogger("celery.app.trace").addFilter(_is_unexpected)


def _is_unexpected(line: logging.LogRecord) -> bool:
    return not (line.exc_info and isinstance(line.exc_info[1], StateFailed))


class StateRequest(celery.worker.request.Request):
    """A message in Celery's worker, which learns the outcome only after the last state in the process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        task: Any = self.task
        # the check of each second would be too late for the first task after somebody began to listen
        task.context.listen(is_listened(self.eventer))

    def send_event(self, type: str, **fields: Any) -> None:
        """Send only the events that the pool process does not send itself."""
        if type not in ("task-started", "task-succeeded", "task-retried", "task-failed"):
            super().send_event(type, **fields)


class StateTask(Task[Any, Any]):
    abstract = True
    context: "WorkerContext"
    Request = f"{__name__}:{StateRequest.__name__}"
    _tracer: Any = None
    _message: Message
    """The message of the current run."""

    @property
    def __trace__(self) -> Any:
        """What Celery calls with a message; Celery sets its own tracer, which runs one task."""
        return self._trace if self._tracer is not None else None

    @__trace__.setter
    def __trace__(self, tracer: Any) -> None:
        self._tracer = tracer

    def _trace(self, uuid: str, args: Any, kwargs: Any, request: Message) -> Any:
        """Run the task of the message and those that follow; returns the outcome of the first."""
        if events := self.context.events():
            events.started(uuid)
        outcome = self.run_once(uuid, args, kwargs, request)
        while (following := self.context.following) is not None:
            if events := self.context.events():
                events.received(following)
            task: Any = self.app.tasks[following["task"]]
            task.run_once(following["id"], following["args"], {}, following)
        return outcome

    def run_once(self, uuid: str, args: Any, kwargs: Any, request: Message) -> Any:
        self._message, self.context.following = request, None
        try:
            outcome = self._tracer(uuid, args, kwargs, request)
        except BaseException:  # this process ends, as after a time limit of Celery
            if events := self.context.events():
                events.stopped(uuid, self.name)
            raise
        if events := self.context.events():
            events.ended(uuid, self.name, outcome)
        if self.context.carried is not None and self.context.following is None:
            # Celery has ended the task before its work began: the sweep continues
            self.context.carried = None
            self.context.drop_session()
        return outcome

    def on_success(self, *_: Any) -> None:
        """Make the message of the task that this process runs next, while Celery still runs this one."""
        if self.context.carried is not None:
            self.context.following = _following(record.ticket(self.context.carried.record), self._message)
            _pass_on(self.context.following, self.request)


def _following(ticket: Ticket, current: Message) -> Message:
    """The message with which Celery would have sent the ticket's task after that of `current`."""
    uuid, task = task_id(ticket), task_of(ticket)
    return {
        **current,
        "id": uuid,
        "task": task.name,
        "args": [ticket.model_dump()],
        "argsrepr": None,  # made by Celery where it logs the arguments
        "parent_id": current["id"],
        "root_id": current.get("root_id") or current["id"],
        "correlation_id": uuid,
        "chain": (current.get("chain") or [])[:-1],
        "delivery_info": {**(current.get("delivery_info") or {}), "routing_key": task.queue.value},
    }


def _pass_on(message: Message, current: Context) -> None:
    """Send Celery's signals of publishing: their handlers add the headers by which a trace continues."""
    if not before_task_publish.receivers:
        # nobody adds headers: Celery need not compare all names with its own once more
        message.setdefault("headers", current.headers or {})
    where = {"exchange": "", "routing_key": message["delivery_info"]["routing_key"]}
    sent = {"sender": message["task"], "body": (message["args"], {}, {}), "headers": message, **where}
    if before_task_publish.receivers:
        before_task_publish.send(**sent, declare=[], properties={}, retry_policy=None)
    if after_task_publish.receivers:
        after_task_publish.send(**sent)


def show(context: "WorkerContext", shown: Job | Batch) -> None:
    """Report the record that the current task works on to listeners of task events."""
    if events := context.events():
        request: Any = current_task.request
        events.started(request.id, shown)
