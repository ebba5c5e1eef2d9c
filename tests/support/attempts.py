"""One attempt in the process of the test, as the work of one state."""

from pipeline.records import Ticket
from tasks.run import StateWork, run
from tasks.worker_context import WorkerContext
from zkstate.record.record import R


def work_on(context: WorkerContext, ticket: Ticket, work: StateWork[R]) -> Ticket | None:
    """The ticket that follows, if the chain has one; also of a record that waits, which no message begins."""
    following, _ = run(context, ticket, {ticket.state: work}, scheduled=True)
    return following
