"""Tickets to messages. A message that is not sent is no error: the sweep sends another one."""

from collections.abc import Iterable

from celery import Celery, chain, signature
from celery.canvas import Signature
from kombu.exceptions import OperationalError

from pipeline.records import Ticket
from pipeline.states import BATCH, JOB, BatchState, JobState, Queue
from tasks.logs import log
from tasks.queue_lists import OWN_TURN, step_of


def dispatch_job(app: Celery, ticket: Ticket, priority: int = 0) -> bool:
    """Send the chain of tasks that begins with the ticket's state; False if Redis does not answer."""
    return _send(_chain_from(app, ticket), ticket, step_of(priority))


def dispatch_jobs(app: Celery, tickets: Iterable[tuple[Ticket, int]]) -> bool:
    """Send the messages of many jobs with their priorities, up to the first that Redis does not take."""
    return all(dispatch_job(app, ticket, priority) for ticket, priority in tickets)


def _chain_from(app: Celery, ticket: Ticket) -> Signature:
    order = JOB.working()
    first, *following = (JOB.task(state).name for state in order[order.index(JobState(ticket.state)) :])
    begin = signature(first, args=(ticket.model_dump(),), app=app)
    return chain(begin, *(signature(name, app=app) for name in following), app=app)


def dispatch_job_in_turn(app: Celery, ticket: Ticket) -> bool:
    """As `dispatch_job`, before all jobs of others: their submitters have more than their share."""
    return _send(_chain_from(app, ticket), ticket, OWN_TURN)


def dispatch_batch(app: Celery, ticket: Ticket, *, in_turn: bool = False) -> bool:
    """`in_turn`: before all splits of others.

    A split is as urgent as the most urgent job, so that neither occupies all processes alone.
    """
    task = BATCH.task(BatchState(ticket.state))
    message = signature(task.name, args=(ticket.model_dump(),), app=app)
    return _send(message, ticket, step_of(0) if task.queue is Queue.SPLIT and not in_turn else OWN_TURN)


def dispatch_failure_callback(app: Celery, jid: str, epoch: int) -> bool:
    """Send the callback task for the job's failure in `epoch`.

    The arguments are not in the form of a ticket, because this message moves no job.
    """
    task = signature("callback.failed", args=(jid, epoch), app=app)
    return _send(task, Ticket(id=jid, state=JobState.FAILED, epoch=epoch), step_of(0))


def _send(task: Signature, ticket: Ticket, priority: int = 0) -> bool:
    try:
        task.apply_async(priority=priority)
    except OperationalError as error:
        log().warning(
            "message not sent; the sweep sends it again", ticket=ticket.model_dump(), error=str(error)
        )
        return False
    return True
