"""Tickets to messages. A message that cannot be sent is no error: the sweep sends another."""

from collections.abc import Iterable

from celery import chain, signature
from celery.canvas import Signature
from kombu import Connection
from kombu.exceptions import OperationalError

from pipeline.records import Batch, Ticket
from pipeline.states import JOB, BatchState, JobState
from tasks.app import app
from tasks.logs import log

BATCH_TASKS = {
    BatchState.PENDING: "batch.split",
    BatchState.PROCESSING: "batch.split",
    BatchState.REPORTING: "batch.report",
    BatchState.UPDATE_REPORTING: "batch.update-report",
}


def task_name(state: JobState) -> str:
    return f"job.{state}"


def dispatch_job(ticket: Ticket, priority: int, connection: Connection | None = None) -> bool:
    """Send the chain of the states' tasks from the ticket's state on; False if Redis does not answer.

    `connection`: to another broker than the settings'.
    """
    working = JOB.working()
    rest = working[working.index(JobState(ticket.state)) :]
    first = signature(task_name(rest[0]), args=(ticket.model_dump(),), app=app)
    steps = chain(first, *(signature(task_name(state), app=app) for state in rest[1:]), app=app)
    return _send(steps, ticket, priority // 10, connection)


def dispatch_jobs(tickets: Iterable[tuple[Ticket, int]]) -> None:
    for ticket, priority in tickets:
        if not dispatch_job(ticket, priority):
            return


def dispatch_batch(ticket: Ticket, connection: Connection | None = None) -> bool:
    task = signature(BATCH_TASKS[BatchState(ticket.state)], args=(ticket.model_dump(),), app=app)
    return _send(task, ticket, 0, connection)


def dispatch_moved(batch: Batch | None) -> None:
    """Send the task of the state that a batch has just come to, if there is one."""
    if batch is not None and batch.status.status in BATCH_TASKS:
        dispatch_batch(Ticket(id=batch.bid, state=batch.status.status, epoch=batch.status.epoch))


def dispatch_failed(jid: str, epoch: int, connection: Connection | None = None) -> bool:
    """Have the depositor's system told of a job that failed in this epoch.

    The arguments are no ticket: nobody is to take the message for one that moves the job.
    """
    told = signature("callback.failed", args=(jid, epoch), app=app)
    return _send(told, Ticket(id=jid, state=JobState.FAILED, epoch=epoch), 0, connection)


def _send(task: Signature, ticket: Ticket, priority: int, connection: Connection | None) -> bool:
    try:
        task.apply_async(priority=priority, connection=connection)
    except OperationalError as error:
        log().warning("not sent, left to the sweep", ticket=ticket.model_dump(), error=str(error))
        return False
    return True
