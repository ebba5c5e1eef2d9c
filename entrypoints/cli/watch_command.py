"""`arkline watch`: how a batch, or the whole queue, gets on."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

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
from pipeline.attempt import Progress
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
        with _meter(bid) as meter, outages_reported(session, _tell_outage):
            for view in follow(session, bid, opened.archive(settings), every_tick=meter.live):
                last = view
                meter.show(view, downloads_of(session, settings, bid) if meter.live else {})
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


class Meter(Protocol):
    live: bool
    """Whether it shows downloads as they proceed."""

    def show(self, view: BatchView, downloads: Mapping[str, Progress]) -> None: ...


@contextmanager
def _meter(bid: str) -> Iterator[Meter]:
    """A bar on a terminal, plain lines elsewhere; on standard error, because it is no part of the answer."""
    console = screen.err()
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[ended]}"))
    with Bars(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield _Bar(progress, bid)


class _Lines:
    live = False

    def __init__(self) -> None:
        self._last = ""

    def show(self, view: BatchView, downloads: Mapping[str, Progress]) -> None:
        del downloads
        line = f"{view.bid}  {view.status}  {ended(view)}"
        if line != self._last:
            self._last = line
            screen.note(line, "")


class _Bar:
    live = True

    def __init__(self, progress: object, bid: str) -> None:
        assert isinstance(progress, Bars)
        self._progress = progress
        self._bid = bid
        self._task = progress.add_task(bid, total=None, ended="")

    def show(self, view: BatchView, downloads: Mapping[str, Progress]) -> None:
        lines = "".join(f"\n{jid}: {progress_line(download)}" for jid, download in downloads.items())
        self._progress.update(
            self._task,
            total=view.total,
            completed=view.ended_jobs,
            description=f"[{screen.style_of(view.status)}]{view.status}[/]",
            ended=escape(f"{ended(view)}{lines}"),
        )


def ended(view: BatchView) -> str:
    """`3 of 10 jobs, 1 failed`."""
    if view.total is None:
        return "not split yet"
    failed = view.buckets[Bucket.FAILED]
    return f"{view.ended_jobs} of {view.total} jobs" + (f", {failed} failed" if failed else "")


def _watch_all(session: Session, settings: Settings) -> None:
    with outages_reported(session, _tell_outage), _board() as board:
        while True:
            try:
                board.draw(overview(session, settings))
            except Unreachable:
                continue
            time.sleep(INTERVAL)


class Board(Protocol):
    def draw(self, view: Overview) -> None: ...


@contextmanager
def _board() -> Iterator[Board]:
    """Redrawn in place on a terminal; elsewhere a line whenever something changed."""
    console = screen.out()
    if not console.is_terminal:
        yield _Log()
        return
    with Live(console=console, auto_refresh=False, screen=False) as live:
        yield _Screen(live)


class _Log:
    def __init__(self) -> None:
        self._last = ""

    def draw(self, view: Overview) -> None:
        line = listed(view.jobs) or "no jobs"
        if line != self._last:
            self._last = line
            screen.say(f"{time.strftime('%H:%M:%S')}  {line}")
            screen.out().file.flush()


class _Screen:
    def __init__(self, live: Live) -> None:
        self._live = live

    def draw(self, view: Overview) -> None:
        self._live.update(Group(*drawn_overview.tables(view)), refresh=True)
