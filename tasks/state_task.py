"""The Celery task of one state, and of the later states through which the same process carries its job.

Each state's work is a run of its own task, with its own id, signals and outcome. A message starts the first
one. If its work has moved the job and this process holds the attempt at the next state, that state's task
follows here, run by Celery's own tracer in the order of a chain: one task ends before the next one begins.
"""

from typing import TYPE_CHECKING, Any

import celery.worker.request
from celery import Task, current_task

from pipeline.records import Batch, Job
from tasks.broker import task_id, task_of
from tasks.events import Message, is_listened
from zkstate.record import record

if TYPE_CHECKING:
    from tasks.worker_context import WorkerContext


class StateFailed(Exception):
    """The work failed, as the record says: Celery's outcome of the task."""


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
    throws = (StateFailed,)
    _tracer: Any = None

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
        ended = request
        while (following := _following(self.context, ended)) is not None:
            if events := self.context.events():
                events.received(following)
            task: Any = self.app.tasks[following["task"]]
            task.run_once(following["id"], following["args"], {}, following)
            ended = following
        return outcome

    def run_once(self, uuid: str, args: Any, kwargs: Any, request: Message) -> Any:
        given = self.context.carried
        outcome = self._tracer(uuid, args, kwargs, request)
        if events := self.context.events():
            events.ended(uuid, self.name, outcome)
        if given is not None and self.context.carried is given:
            # Celery has ended the task before its work began: the sweep continues
            self.context.carried = None
            self.context.drop_session()
        return outcome


def _following(context: "WorkerContext", ended: Message) -> Message | None:
    """The task that this process runs next, in the form of a message; None if it has begun no attempt."""
    if context.carried is None:
        return None
    ticket = record.ticket(context.carried.record)
    uuid = task_id(ticket)
    return {
        **ended,
        "id": uuid,
        "task": task_of(ticket).name,
        "args": [ticket.model_dump()],
        "argsrepr": None,  # made by Celery where it logs the arguments
        "parent_id": ended["id"],
        "root_id": ended.get("root_id") or ended["id"],
        "correlation_id": uuid,
        "chain": (ended.get("chain") or [])[:-1],
    }


def show(context: "WorkerContext", shown: Job | Batch) -> None:
    """Report the record that the current task works on to listeners of task events."""
    if events := context.events():
        request: Any = current_task.request
        events.started(request.id, shown)
