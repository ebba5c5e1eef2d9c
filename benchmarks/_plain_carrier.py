"""A worker that carries jobs without a Celery task for each state: `python -m benchmarks._plain_carrier`.

The first state of a message is a task of Celery; the others are called, without tracer, signals or events.
"""

import sys
from typing import Any

from celery import Task
from celery._state import _task_stack  # type: ignore[attr-defined]  # not in its stubs
from celery.app.task import Context
from celery.exceptions import Retry

from entrypoints.stack.child import Process
from tasks import worker_program
from tasks.broker import task_of
from tasks.state_task import StateFailed, StateTask
from tests.support.fleet import Fleet
from zkstate.record import record


def _run(self: StateTask, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> Any:
    outcome = self._tracer(uuid, args, kwargs, request)
    while self.context.carried is not None:
        ticket = record.ticket(self.context.carried.record)
        task: Any = self.app.tasks[task_of(ticket).name]
        _task_stack.push(task)
        task.request_stack.push(Context(request))
        try:
            task.run(ticket.model_dump())
        except (StateFailed, Retry):
            pass  # as the record says
        finally:
            task.request_stack.pop()
            _task_stack.pop()
    return outcome


def worker(fleet: Fleet, processes: int, name: str = "worker") -> Process:
    """Start a worker that is ready."""
    arguments = ("-c", str(processes), "-n", f"{name}@%h")
    return fleet.start(name, "-m", "benchmarks._plain_carrier", *arguments)


if __name__ == "__main__":
    StateTask._trace = _run  # type: ignore[method-assign]
    StateTask.on_success = Task.on_success  # type: ignore[method-assign]
    sys.exit(worker_program.main())
