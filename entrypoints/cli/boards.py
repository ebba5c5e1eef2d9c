"""The board that a command follows: that of the stack beside it, or that of a site over the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from entrypoints.cli import context as opened
from entrypoints.cli import sites
from operations import top
from operations.board import board as boards
from operations.board import values
from zkstate import errors

if TYPE_CHECKING:
    from operations.board.board import Board
    from operations.top import LiveView

FILL_TIMEOUT = 60.0
"""Seconds to wait until the board is filled for the first time."""


class LiveBoard(Protocol):
    def read(self) -> LiveView:
        """The board now; without a request or a read while nothing has changed."""
        ...

    def wait_change(self, seconds: float) -> None:
        """Until something changes, for `seconds` at most."""
        ...


@dataclass
class BoardBeside:
    """The board of this process, which follows the record."""

    board: Board
    _last: str = field(default="", init=False)

    def read(self) -> LiveView:
        self._last = self.board.changes_since(None).last
        return top.live_view(self.board, values.EVERYTHING)

    def wait_change(self, seconds: float) -> None:
        self.board.wait_change(self._last, seconds)


@contextmanager
def live_board() -> Iterator[LiveBoard]:
    if (remote := sites.client()) is not None:
        from entrypoints.cli.remote.events import stream
        from entrypoints.cli.remote.following import RemoteBoard
        from entrypoints.cli.remote.site import RemoteSite

        with stream(remote, "/v1/events") as next_news:
            yield RemoteBoard(RemoteSite(remote), next_news)
        return
    with opened.session() as (session, settings):
        board = boards.Board.open(session, settings)
        try:
            if not board.wait_filled(FILL_TIMEOUT):
                raise errors.Unreachable(f"the record at {settings.zk_hosts} could not be listed in time")
            yield BoardBeside(board)
        finally:
            board.close()
