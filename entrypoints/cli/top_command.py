"""`arkline top`: jobs, stops and failures by cause, redrawn as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich import console as rich_console
from rich import live as rich_live

from entrypoints.cli import api, following
from entrypoints.cli import console as screen
from entrypoints.cli.options import Json, command
from entrypoints.cli.render import top as drawn

if TYPE_CHECKING:
    from entrypoints.cli.following import LiveBoard
    from operations.top import LiveView

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
    with api.site() as site:
        if once:
            _show_once(following.live_view(site), as_json=json)
            return
        with following.live_board(site) as board:
            _follow(board)


def _show_once(view: LiveView, *, as_json: bool) -> None:
    if as_json:
        screen.emit(view.summary)
        return
    for grid in drawn.tables(view):
        screen.show(grid)


def _follow(board: LiveBoard) -> None:
    """Redrawn in place on a terminal; elsewhere once for each change."""
    with rich_live.Live(console=screen.out(), auto_refresh=False) as area:
        while True:
            area.update(rich_console.Group(*drawn.tables(board.read())), refresh=True)
            board.wait_change(REDRAW)
