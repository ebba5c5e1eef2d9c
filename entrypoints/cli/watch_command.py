"""`arkline watch`: the progress of a batch, or of the whole queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich import console as rich_console
from rich import live as rich_live
from rich import markup
from rich import progress as bars

from entrypoints.cli import completion, exit_codes, sites
from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command, read_bid
from entrypoints.cli.render import humanize
from entrypoints.cli.render import overview as drawn_overview
from entrypoints.cli.render import views as drawn
from operations import batch_view, live, overview, progress, reports
from pipeline.errors import ServiceUnreachable
from pipeline.states import Bucket
from zkstate import errors

if TYPE_CHECKING:
    from entrypoints.cli.remote.client import Client
    from operations.batch_view import BatchView
    from operations.overview import Overview
    from pipeline.attempt import Progress
    from pipeline.settings import Settings
    from zkstate.session import Session

POLL = 1.0
"""Seconds between two reads of a batch over the API."""

INTERVAL = 1.0
"""Seconds between two reads of the whole queue."""


@command("arkline watch bid0000000001")
def watch(
    bid: Annotated[
        str | None,
        typer.Argument(
            metavar="BID",
            parser=read_bid,
            autocompletion=completion.bids,
            help="A batch; default: the queue.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show progress until a batch has ended.

    Exit 1 if it failed. Without a BID, show the queue until Ctrl-C.
    """
    if bid is None and json:
        raise typer.BadParameter("--json needs a BID: the whole queue never ends", param_hint="--json")
    if bid is not None and (remote := sites.client()) is not None:
        raise typer.Exit(wait_remote(remote, bid, as_json=json))
    with opened.session() as (session, settings):
        if bid is not None:
            raise typer.Exit(wait_for(session, settings, bid, as_json=json))
        _watch_all(session, settings)


def wait_for(session: Session, settings: Settings, bid: str, *, as_json: bool) -> int:
    """Show a batch's progress until it has ended; the exit code that says how."""
    last: BatchView | None = None
    try:
        terminal = screen.err().is_terminal
        downloads = partial(live.downloads_of, session, settings, bid)
        with _meter(downloads, bid) as show, progress.outages_reported(session, _report_outage):
            for last in progress.follow(session, bid, opened.archive(settings, session), every_tick=terminal):
                show(last)
    except KeyboardInterrupt:
        screen.note(f"{bid} continues without this command; to follow it again: arkline watch {bid}")
        raise
    assert last is not None
    last = reports.with_objects(session, last, opened.archive(settings, session))
    if as_json:
        screen.emit(last)
    else:
        drawn.batch(last)
        drawn.objects(last)
    return exit_codes.of_state(last.status)


def wait_remote(client: Client, bid: str, *, as_json: bool) -> int:
    """As `wait_for`, over the API; a site that does not answer for a while does not end it."""
    from entrypoints.cli.remote.site import RemoteSite

    site, away = RemoteSite(client), False
    view = site.batch(bid)
    try:
        with _meter(dict, bid) as show:
            while not view.ended:
                show(view)
                time.sleep(POLL)
                try:
                    view = site.batch(bid)
                except ServiceUnreachable as error:
                    if not away:
                        screen.note(f"{error}; still trying")
                    away = True
                    continue
                if away:
                    screen.note("the site answers again")
                away = False
            show(view)
    except KeyboardInterrupt:
        screen.note(f"{bid} continues without this command; to follow it again: arkline watch {bid}")
        raise
    if (view.total or 0) <= batch_view.LISTED:
        view = reports.with_objects_of(view, site.report(bid))
    if as_json:
        screen.emit(view)
    else:
        drawn.batch(view)
        drawn.objects(view)
    return exit_codes.of_state(view.status)


def _report_outage(away: bool) -> None:
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
def _meter(downloading: Callable[[], dict[str, Progress]], bid: str) -> Iterator[Callable[[BatchView], None]]:
    """A bar on a terminal, plain lines elsewhere; on standard error, because it is no part of the answer."""
    console = screen.err()
    if not console.is_terminal:
        show = _on_change(lambda line: screen.note(line, ""))
        yield lambda view: show(f"{view.bid}  {view.status}  {ended(view)}")
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[ended]}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as meter:
        task = meter.add_task(bid, total=None, ended="")

        def draw(view: BatchView) -> None:
            downloads = downloading()
            lines = "".join(f"\n{jid}: {humanize.progress(download)}" for jid, download in downloads.items())
            meter.update(
                task,
                total=view.total,
                completed=view.ended_jobs,
                description=f"[{screen.style_of(view.status)}]{view.status}[/]",
                ended=markup.escape(f"{ended(view)}{lines}"),
            )

        yield draw


def ended(view: BatchView) -> str:
    """`3 of 10 jobs, 1 failed`."""
    if view.total is None:
        return "not split yet"
    failed = view.buckets[Bucket.FAILED]
    return f"{view.ended_jobs} of {humanize.counted(view.total, 'job')}" + (
        f", {failed} failed" if failed else ""
    )


def _watch_all(session: Session, settings: Settings) -> None:
    with progress.outages_reported(session, _report_outage), _board() as draw:
        while True:
            try:
                draw(overview.overview(session, settings))
            except errors.Unreachable:
                continue
            time.sleep(INTERVAL)


@contextmanager
def _board() -> Iterator[Callable[[Overview], None]]:
    """Redrawn in place on a terminal; elsewhere a line whenever something changed."""
    console = screen.out()
    if not console.is_terminal:
        show = _on_change(_log)
        yield lambda view: show(humanize.listed(view.jobs) or "no jobs")
        return
    with rich_live.Live(console=console, auto_refresh=False, screen=False) as board:
        yield lambda view: board.update(rich_console.Group(*drawn_overview.tables(view)), refresh=True)


def _log(line: str) -> None:
    screen.say(f"{time.strftime('%H:%M:%S')}  {line}")
    screen.flush()
