"""One attempt in the process of the test, as the work of one state."""

from pipeline.records import Ticket
from tasks.run import JOBS, StateWork, run
from tasks.worker_context import WorkerContext
from zkstate.record.record import R


def work_on(context: WorkerContext, ticket: Ticket, work: StateWork[R]) -> Ticket | None:
    """The ticket that follows, if the chain has one; also of a record that waits, which no message begins."""
    return run(context, ticket, {ticket.state: work}, scheduled=True).following


def work_onward(context: WorkerContext, ticket: Ticket) -> tuple[Ticket | None, int]:
    """The states of a job in one process: the ticket for Celery's chain, and the number of states carried."""
    carried = 0
    ended = run(context, ticket, JOBS)
    while context.carried is not None and ended.following is not None:
        carried += 1
        ended = run(context, ended.following, JOBS)
    return ended.following, carried
