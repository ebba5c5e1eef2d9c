"""`arkline top` and `watch`: the board, a batch or the queue, redrawn as they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeAlias

import rich.console
import rich.live
import rich.progress
import typer
from rich import markup

from entrypoints.cli import api, completion, exit_codes, following
from entrypoints.cli.options import Json, command, read_bid
from entrypoints.render import fleet_status, screen, views
from operations.board import values
from operations.jobs import batch_view, job_view
from pipeline import attempt, humanize
from pipeline.errors import ServiceUnreachable
from pipeline.notify import batch_report
from pipeline.states import Bucket, JobState

if TYPE_CHECKING:
    from entrypoints.cli.following import LiveBoard
    from operations.board.values import LiveView
if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.board.values import LiveView
    from operations.jobs.batch_view import BatchView
    from pipeline.attempt import Progress

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
    for grid in fleet_status.board_tables(view):
        screen.show(grid)


def _follow(board: LiveBoard) -> None:
    """Redrawn in place on a terminal; elsewhere once for each change."""
    with rich.live.Live(console=screen.out(), auto_refresh=False) as area:
        while True:
            area.update(rich.console.Group(*fleet_status.board_tables(board.read())), refresh=True)
            board.wait_change(REDRAW)


Downloads: TypeAlias = "Callable[[BatchView], Mapping[str, Progress]]"
"""JID -> progress of the jobs of the batch that are downloading."""


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
    with api.site() as site:
        if bid is None:
            _watch_all(site)
        raise typer.Exit(wait_for(site, bid, as_json=json))


def wait_for(site: Client, bid: str, *, as_json: bool) -> int:
    """Show a batch's progress until it has ended; the exit code that says how.

    A site that does not answer for a while does not end it.
    """
    views = following.follow(site, bid, _report_site, tick=_tick())
    last = _show_until_ended(views, bid, _downloads(site))
    if (last.total or 0) <= batch_view.LISTED:
        last = batch_view.with_objects_of(
            last, site.get(f"/v1/batches/{bid}/report", batch_report.BatchReport)
        )
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
        views.batch(view)
        views.objects(view)
    return exit_codes.of_state(view.status)


def _downloads(site: Client) -> Downloads:
    """The first downloads of a batch."""

    def read(view: BatchView) -> Mapping[str, Progress]:
        if not view.jobs.get(JobState.DOWNLOADING):
            return {}
        try:
            page = site.get(
                "/v1/jobs", values.JobPage, batch=view.bid, state=JobState.DOWNLOADING, limit=job_view.SHOWN
            )
            asked = {row.jid: site.get_json(f"/v1/jobs/{row.jid}/progress") for row in page.rows}
        except ServiceUnreachable:
            return {}
        return {jid: attempt.Progress(**reported) for jid, reported in asked.items() if reported}

    return read


def _report_site(error: ServiceUnreachable | None) -> None:
    screen.note("the site answers again" if error is None else f"{error}; still trying")


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
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.fields[ended]}"),
        rich.progress.TimeElapsedColumn(),
    )
    with rich.progress.Progress(*columns, console=console, transient=True) as meter:
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


def _watch_all(site: Client) -> NoReturn:
    with following.live_board(site) as board, _queue() as draw:
        while True:
            draw(board.read())
            board.wait_change(REDRAW)


@contextmanager
def _queue() -> Iterator[Callable[[LiveView], None]]:
    """Redrawn in place on a terminal; elsewhere a line whenever something changed."""
    console = screen.out()
    if console.is_terminal:
        with rich.live.Live(console=console, auto_refresh=False, screen=False) as area:
            yield lambda live: area.update(rich.console.Group(*fleet_status.queue_tables(live)), refresh=True)
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
