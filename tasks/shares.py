"""Shares of the processes: while one party has more than its share, a job of another party goes first."""

from tasks.dispatch import dispatch_in_turn
from tasks.logs import log
from tasks.run import giving_up
from tasks.worker_context import WorkerContext
from zkstate import jobs, process_shares, record
from zkstate.locks import ServerClock
from zkstate.recovery import Live
from zkstate.session import Session


def give_turn(context: WorkerContext, session: Session, live: Live, clock: ServerClock) -> None:
    """Send the ticket of the job whose turn it is before all others; ask a download to yield to it.

    One job in each sweep: the next sweep sees what that changed.
    """
    turn = process_shares.next_turn(session, live, clock, context.settings.share_of_processes)
    if turn is None:
        return
    with giving_up(context, jid=turn.jid):
        ticket = record.redispatch(session, jobs.load(session, turn.jid), lost=False)
        dispatch_in_turn(context.app, ticket)
        if turn.yielding is not None:
            process_shares.ask_to_yield(session, turn.yielding)
        log().info("goes before jobs of others", jid=turn.jid, yielding=turn.yielding)
