"""`arkline watch`: how a batch, or the whole queue, gets on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes
from entrypoints.cli.options import Json, OptionalBid
from entrypoints.cli.render import overview as drawn_overview
from entrypoints.cli.render import views as drawn
from entrypoints.cli.render.humanize import listed
from entrypoints.cli.render.progress import progress as progress_line
from operations.batch_view import BatchView
from operations.live import downloads_of
from operations.overview import Overview, overview
from operations.progress import follow, outages_reported
from pipeline.settings import Settings
from pipeline.states import Bucket
from zkstate.errors import Unreachable
from zkstate.session import Session

INTERVAL = 1.0
"""Seconds between two reads of the whole queue."""


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline watch bid0000000001")(watch)


def watch(bid: OptionalBid = None, json: Json = False) -> None:
    """Show progress until a batch has ended.

    Exit 1 if it failed. Without a BID, show the queue until Ctrl-C.
    """
    settings = opened.settings()
    if bid is None and json:
        raise typer.BadParameter("--json needs a BID: the whole queue never ends", param_hint="--json")
    with opened.session(settings) as session:
        if bid is not None:
            raise typer.Exit(wait_for(session, settings, bid, as_json=json))
        _watch_all(session, settings)


def wait_for(session: Session, settings: Settings, bid: str, *, as_json: bool) -> int:
    """Show a batch's progress until it has ended; the exit code that says how."""
    last: BatchView | None = None
    try:
        live = screen.err().is_terminal
        with _meter(session, settings, bid) as show, outages_reported(session, _tell_outage):
            for view in follow(session, bid, opened.archive(settings), every_tick=live):
                last = view
                show(view)
    except KeyboardInterrupt:
        screen.note(f"{bid} continues without this command; to follow it again: arkline watch {bid}")
        raise
    assert last is not None
    if as_json:
        screen.emit(last)
    else:
        drawn.batch(last)
    return exit_codes.of_state(last.status)


def _tell_outage(away: bool) -> None:
    screen.note("ZooKeeper does not answer, still trying" if away else "ZooKeeper answers again")


def _on_change(write: Callable[[str], None]) -> Callable[[str], None]:
    """`write` for lines that differ from the line before."""
    last = ""

    def show(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            write(line)

    return show


@contextmanager
def _meter(session: Session, settings: Settings, bid: str) -> Iterator[Callable[[BatchView], None]]:
    """A bar on a terminal, plain lines elsewhere; on standard error, because it is no part of the answer."""
    console = screen.err()
    if not console.is_terminal:
        show = _on_change(lambda line: screen.note(line, ""))
        yield lambda view: show(f"{view.bid}  {view.status}  {ended(view)}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[ended]}"))
    with Bars(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        task = bars.add_task(bid, total=None, ended="")

        def draw(view: BatchView) -> None:
            downloads = downloads_of(session, settings, bid)
            lines = "".join(f"\n{jid}: {progress_line(download)}" for jid, download in downloads.items())
            bars.update(
                task,
                total=view.total,
                completed=view.ended_jobs,
                description=f"[{screen.style_of(view.status)}]{view.status}[/]",
                ended=escape(f"{ended(view)}{lines}"),
            )

        yield draw


def ended(view: BatchView) -> str:
    """`3 of 10 jobs, 1 failed`."""
    if view.total is None:
        return "not split yet"
    failed = view.buckets[Bucket.FAILED]
    return f"{view.ended_jobs} of {view.total} jobs" + (f", {failed} failed" if failed else "")


def _watch_all(session: Session, settings: Settings) -> None:
    with outages_reported(session, _tell_outage), _board() as draw:
        while True:
            try:
                draw(overview(session, settings))
            except Unreachable:
                continue
            time.sleep(INTERVAL)


@contextmanager
def _board() -> Iterator[Callable[[Overview], None]]:
    """Redrawn in place on a terminal; elsewhere a line whenever something changed."""
    console = screen.out()
    if not console.is_terminal:
        show = _on_change(_log)
        yield lambda view: show(listed(view.jobs) or "no jobs")
        return
    with Live(console=console, auto_refresh=False, screen=False) as live:
        yield lambda view: live.update(Group(*drawn_overview.tables(view)), refresh=True)


def _log(line: str) -> None:
    screen.say(f"{time.strftime('%H:%M:%S')}  {line}")
    screen.out().file.flush()
