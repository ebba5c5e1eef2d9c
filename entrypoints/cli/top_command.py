"""`arkline top`: jobs, stops and failures by cause, redrawn as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import console as rich_console
from rich import live as rich_live

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from entrypoints.cli.render import top as drawn
from operations import top as summaries
from operations.board import board as boards
from operations.board import values
from zkstate import errors

if TYPE_CHECKING:
    from operations.board.board import Board

FILL_TIMEOUT = 60.0
"""Seconds to wait until the board is filled for the first time."""

REDRAW = 1.0
"""Seconds after which ages are drawn again, although nothing has changed."""


@command("arkline top --once")
def top(
    once: Annotated[bool, typer.Option("--once", help="Show the board once and end.")] = False,
    json: Json = False,
) -> None:
    """Show jobs, stops and failures by cause as they change.

    It follows the record and reads no job that only waits. Runs until Ctrl-C.
    """
    if json and not once:
        raise typer.BadParameter("--json needs --once: the board never ends", param_hint="--json")
    with opened.session() as (session, settings):
        board = boards.Board.open(session, settings)
        try:
            if not board.wait_filled(FILL_TIMEOUT):
                raise errors.Unreachable(f"the record at {settings.zk_hosts} could not be listed in time")
            if once:
                _show_once(board, as_json=json)
            else:
                _follow(board)
        finally:
            board.close()


def _show_once(board: Board, *, as_json: bool) -> None:
    view = summaries.summary(board, values.EVERYTHING)
    if as_json:
        screen.emit(view)
        return
    for grid in drawn.tables(view):
        screen.show(grid)


def _follow(board: Board) -> None:
    """Redrawn in place on a terminal; elsewhere once for each change."""
    last = board.changes_since(None).last
    with rich_live.Live(console=screen.out(), auto_refresh=False) as area:
        while True:
            view = summaries.summary(board, values.EVERYTHING)
            area.update(rich_console.Group(*drawn.tables(view)), refresh=True)
            board.wait_change(last, REDRAW)
            last = board.changes_since(None).last
