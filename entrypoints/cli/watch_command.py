"""`arkline watch`: the progress of a batch, or of the whole queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import typer
from rich import console as rich_console
from rich import live as rich_live
from rich import markup
from rich import progress as bars

from entrypoints.cli import boards, completion, exit_codes, sites
from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, command, read_bid
from entrypoints.cli.render import humanize
from entrypoints.cli.render import top as drawn_top
from entrypoints.cli.render import views as drawn
from operations import batch_view, live, progress, reports
from pipeline.errors import ServiceUnreachable
from pipeline.states import Bucket
from zkstate import errors

if TYPE_CHECKING:
    from entrypoints.cli.remote.client import Client
    from operations.batch_view import BatchView
    from operations.site import Site
    from operations.top import LiveView
    from pipeline.attempt import Progress
    from pipeline.settings import Settings
    from zkstate.session import Session

Downloads: TypeAlias = "Callable[[BatchView], Mapping[str, Progress]]"
"""JID -> progress of the jobs of the batch that are downloading."""

REDRAW = 1.0
"""Seconds after which times and downloads are drawn again on a terminal, although nothing has changed."""


@command("arkline watch bid0000000001")
def watch(
    bid: Annotated[
        str | None,
        typer.Argument(
            metavar="BID",
            parser=read_bid,
            autocompletion=completion.bids,
            help="A batch; default: the whole queue.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show progress until a batch has ended.

    Exit 1 if it failed. Without a BID, show the queue until Ctrl-C.
    """
    if bid is None and json:
        raise typer.BadParameter("--json needs a BID: the whole queue never ends", param_hint="--json")
    if bid is None:
        _watch_all()
    if (remote := sites.client()) is not None:
        raise typer.Exit(wait_remote(remote, bid, as_json=json))
    with opened.site() as site:
        raise typer.Exit(wait_for(site, bid, as_json=json))


def wait_for(site: Site, bid: str, *, as_json: bool) -> int:
    """Show a batch's progress until it has ended; the exit code that says how."""
    principal = common.principal()
    with progress.outages_reported(site.session, _report_outage):
        views = progress.follow(site, principal, bid, tick=_tick())
        last = _show_until_ended(views, bid, _downloads(site.session, site.settings))
    return _finished(reports.with_objects(site, principal, last), as_json=as_json)


def wait_remote(client: Client, bid: str, *, as_json: bool) -> int:
    """As `wait_for`, over the API; a site that does not answer for a while does not end it."""
    from entrypoints.cli.remote.following import follow
    from entrypoints.cli.remote.site import RemoteSite

    last = _show_until_ended(follow(client, bid, _report_site, tick=_tick()), bid, lambda _: {})
    if (last.total or 0) <= batch_view.LISTED:
        last = reports.with_objects_of(last, RemoteSite(client).report(bid))
    return _finished(last, as_json=as_json)


def _tick() -> float | None:
    return REDRAW if screen.err().is_terminal else None


def _show_until_ended(views: Iterator[BatchView], bid: str, downloads: Downloads) -> BatchView:
    """The last of the views."""
    last: BatchView | None = None
    try:
        with _meter(downloads, bid) as show:
            for last in views:
                show(last)
    except KeyboardInterrupt:
        screen.note(f"{bid} continues without this command; to follow it again: arkline watch {bid}")
        raise
    assert last is not None
    return last


def _finished(view: BatchView, *, as_json: bool) -> int:
    if as_json:
        screen.emit(view)
    else:
        drawn.batch(view)
        drawn.objects(view)
    return exit_codes.of_state(view.status)


def _downloads(session: Session, settings: Settings) -> Downloads:
    """The downloads of a batch; its jobs are listed again only when the batch has changed."""
    shown: BatchView | None = None
    jids: tuple[str, ...] = ()

    def read(view: BatchView) -> Mapping[str, Progress]:
        nonlocal shown, jids
        if view is not shown:
            try:
                shown, jids = view, live.candidates(session, view.bid)
            except errors.Unreachable:
                return {}
        return live.downloads_of(settings, jids)

    return read


def _report_site(error: ServiceUnreachable | None) -> None:
    screen.note("the site answers again" if error is None else f"{error}; still trying")


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
def _meter(downloads: Downloads, bid: str) -> Iterator[Callable[[BatchView], None]]:
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
            shown = downloads(view).items()
            lines = "".join(f"\n{jid}: {humanize.progress(download)}" for jid, download in shown)
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


def _watch_all() -> NoReturn:
    with boards.live_board() as board, _queue() as draw:
        while True:
            draw(board.read())
            board.wait_change(REDRAW)


@contextmanager
def _queue() -> Iterator[Callable[[LiveView], None]]:
    """Redrawn in place on a terminal; elsewhere a line whenever something changed."""
    console = screen.out()
    if console.is_terminal:
        with rich_live.Live(console=console, auto_refresh=False, screen=False) as area:
            yield lambda live: area.update(rich_console.Group(*drawn_top.queue_tables(live)), refresh=True)
        return
    show, away = _on_change(_log), False

    def line(live: LiveView) -> None:
        nonlocal away
        stale = live.summary.freshness.stale
        if stale is not away:
            problem = live.problem or "ZooKeeper does not answer"
            screen.note(f"{problem}; still trying" if stale else "the board is live again")
        away = stale
        if not stale:
            show(humanize.listed(live.summary.jobs) or "no jobs")

    yield line


def _log(line: str) -> None:
    screen.say(f"{time.strftime('%H:%M:%S')}  {line}")
    screen.flush()
