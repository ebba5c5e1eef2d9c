"""Shares of the processes: while one party has more than its share, work of another party goes first."""

from tasks.dispatch import dispatch_batch, dispatch_job_in_turn
from tasks.logs import log
from tasks.run import giving_up
from tasks.worker_context import WorkerContext
from zkstate import batches, jobs, process_shares, record
from zkstate.locks import ServerClock
from zkstate.recovery import Live
from zkstate.session import Session

SHARE = 75
"""Percent of the busy processes that one submitter or collection keeps while jobs of others wait for one."""


def give_turn(context: WorkerContext, session: Session, live: Live, clock: ServerClock) -> None:
    """Send the tickets of those whose turn it is before all others; ask one attempt to yield to them.

    One attempt in each sweep: the next sweep sees what that changed.
    """
    turn = process_shares.next_turn(session, live, clock, SHARE)
    if turn is None:
        return
    for name in turn.names:
        with giving_up(context, locks=False, name=name):
            _dispatch_in_turn(context, session, name)
    if turn.yielding is not None:
        process_shares.ask_to_yield(session, turn.yielding, anew=turn.anew)
    log().info("goes before work of others", names=turn.names, yielding=turn.yielding, anew=turn.anew)


def _dispatch_in_turn(context: WorkerContext, session: Session, name: str) -> None:
    if process_shares.is_job(name):
        ticket = record.redispatch(session, jobs.load(session, name), lost=False)
        dispatch_job_in_turn(context.app, ticket)
    else:
        ticket = record.redispatch(session, batches.load(session, name), lost=False)
        dispatch_batch(context.app, ticket, in_turn=True)
