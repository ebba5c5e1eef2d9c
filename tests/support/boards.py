"""Waiting for what a board shows."""

import time
from collections.abc import Callable

from operations.board.board import Board
from operations.board.values import EVERYTHING, JobPage, JobSearch
from operations.jobs import job_view
from zkstate.connection.session import Session


def until(board: Board, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds: for changes of the board, and for what it counts after them."""
    deadline = time.monotonic() + 20
    last = board.changes_since(None).last
    while not condition():
        assert time.monotonic() < deadline, "the board does not show it within 20 s"
        board.wait_change(last, 0.2)
        last = board.changes_since(None).last


def job_page(session: Session, limit: int = 100, after: str | None = None, **conditions: object) -> JobPage:
    """A page of the list of jobs, as the record is now."""
    board = Board.on_demand(session, 30)
    try:
        search = JobSearch.model_validate(conditions)
        return job_view.rows(session, board, EVERYTHING, search, limit, after)
    finally:
        board.close()


def requests_of(session: Session) -> int:
    """Requests that the session has sent, without the pings."""
    return int(session.zk._connection._xid)
