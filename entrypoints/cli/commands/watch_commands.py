"""`arkline top` and `watch`: read the board, a batch or the queue again, and redraw it until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Annotated

import rich.console
import rich.live
import rich.progress
import typer
from rich import markup

from entrypoints.cli import acting, api, completion, exit_codes, watching
from entrypoints.cli.options import Json, command, read_bid
from entrypoints.render import explanation, fleet_status, screen, views
from operations.board import values
from operations.explanation import Explanation
from operations.jobs import batch_view, job_view
from operations.reasons import Reason
from pipeline import attempt, humanize
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.notify import batch_report
from pipeline.states import BATCH, BatchState, Bucket, JobState

INTERVAL = 1.0
"""Seconds between two queries of a batch."""

STILL, LONGEST_STILL = 10.0, 120.0
"""Seconds without a change after which it is asked what a batch waits for; at most, between two questions."""


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
        if not once:
            # redrawn in place on a terminal; elsewhere printed once, at the end
            with rich.live.Live(console=screen.out(), auto_refresh=False) as area:
                for view in _boards(site):
                    area.update(rich.console.Group(*fleet_status.board_tables(view)), refresh=True)
        view = _board(site)
    if json:
        screen.emit(view.summary)
    else:
        for grid in fleet_status.board_tables(view):
            screen.show(grid)
    watching.require_current(view.summary)


def _board(site: api.Client) -> values.LiveView:
    """The current board, and the latest batches."""
    failures = site.get_json("/v1/failures")
    summary = values.BoardSummary.model_validate(
        {
            **site.get_json("/v1/board"),
            "failures": failures[: values.CAUSES_SHOWN],
            "causes": len(failures),
            "collections": site.get_json("/v1/collections"),
        }
    )
    batches = site.get("/v1/batches", values.BatchPage, limit=values.LATEST)
    return values.LiveView(summary=summary, batches=batches)


def _boards(site: api.Client) -> Iterator[values.LiveView]:
    """The board after each change; while the site does not answer, the last board, marked as stale."""
    for board, problem in watching.readings(site, _board):
        yield board.stale(problem) if problem else board


@command("arkline watch bid0000000001", ids="bid")
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
        if bid is not None:
            raise typer.Exit(wait_for(site, bid, as_json=json))
        with _queue() as draw:
            for view in _boards(site):
                draw(view)


def wait_for(site: api.Client, bid: str, *, as_json: bool) -> int:
    """Show a batch's progress until it has ended; returns the exit code for its final state.

    The wait survives a site that does not answer for a while.
    """
    try:
        explain = _standstill(site, bid)
        with _meter(site, bid) as show:
            for view in _views(site, bid):
                show(view)
                explain(view)
    except KeyboardInterrupt:
        screen.note(f"{bid} continues without this command; to follow it again: arkline watch {bid}")
        raise
    if (view.total or 0) <= batch_view.LISTED:
        path = f"/v1/batches/{bid}/report"
        report = acting.back_off().repeated(lambda: site.get(path, batch_report.BatchReport))
        view = batch_view.with_objects_of(view, report)
    if as_json:
        screen.emit(view)
    else:
        views.batch(view)
        views.objects(view)
    return exit_codes.of_state(view.status)


def _views(site: api.Client, bid: str) -> Iterator[batch_view.BatchView]:
    """The batch, repeatedly until it has ended; notes when the site goes away and when it is back."""
    site = replace(site, timeout=watching.SILENCE)
    view, note = site.get(f"/v1/batches/{bid}", batch_view.BatchView), watching.noting()
    yield view
    while not view.ended:
        time.sleep(INTERVAL)
        try:
            view = site.get(f"/v1/batches/{bid}", batch_view.BatchView)
        except ServiceUnreachable as error:
            note(str(error))
            continue
        note("")
        yield view


def _standstill(site: api.Client, bid: str) -> Callable[[batch_view.BatchView], None]:
    """A function of each view that notes what the batch waits for, if that does not end by itself soon.

    It asks once the batch has not moved for a while, and then less and less often.
    """
    last: tuple[BatchState, dict[JobState, int]] | None = None
    asked, pause, noted = 0.0, STILL, ""

    def explain(view: batch_view.BatchView) -> None:
        nonlocal last, asked, pause, noted
        if (moved := (view.status, view.jobs)) != last:
            last, asked, pause = moved, time.monotonic(), STILL
        elif time.monotonic() - asked >= pause:
            asked, pause = time.monotonic(), min(2 * pause, LONGEST_STILL)
            with suppress(ArklineError):  # what lasts is met by the next question about the batch itself
                why = site.get(f"/v1/batches/{bid}/why", Explanation)
                if (cause := _stuck(why)) not in ("", noted):
                    noted = cause
                    screen.note(explanation.text(why))

    return explain


def _stuck(why: Explanation) -> str:
    """What the batch or its next job waits for; empty if it moves, or has ended meanwhile."""
    cause, ended = why.first or why, why.state in BATCH.where(lambda facts: facts.ended)
    waits = not ended and (cause.reason is Reason.SERVICE_DOWN or not why.moves_itself)
    return f"{cause.reason} {cause.waits_for}" if waits else ""


def _downloads(site: api.Client, view: batch_view.BatchView) -> Mapping[str, attempt.Progress]:
    """JID -> progress of the batch's first downloading jobs."""
    if not view.jobs.get(JobState.DOWNLOADING):
        return {}
    try:
        page = site.get(
            "/v1/jobs", values.JobPage, batch=view.bid, state=JobState.DOWNLOADING, limit=job_view.SHOWN
        )
        return {row.jid: reported for row in page.rows if (reported := site.progress(row.jid))}
    except ServiceUnreachable:
        return {}


def _on_change(write: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap `write` so that it skips a line equal to the one before."""
    last = ""

    def show(line: str) -> None:
        nonlocal last
        if line != last:
            last = line
            write(line)

    return show


@contextmanager
def _meter(site: api.Client, bid: str) -> Iterator[Callable[[batch_view.BatchView], None]]:
    """A progress bar on a terminal, plain lines elsewhere; on standard error, as it is not the answer."""
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

        def draw(view: batch_view.BatchView) -> None:
            shown = _downloads(site, view).items()
            lines = "".join(f"\n{jid}: {humanize.progress(download)}" for jid, download in shown)
            meter.update(
                task,
                total=view.total,
                completed=view.ended_jobs,
                description=f"[{screen.style_of(view.status)}]{view.status}[/]",
                ended=markup.escape(f"{ended(view)}{lines}"),
            )

        yield draw


def ended(view: batch_view.BatchView) -> str:
    """`3 of 10 jobs, 1 failed, about 2 minutes left`."""
    if view.total is None:
        return "not split yet"
    failed = view.buckets[Bucket.FAILED]
    parts = [f"{view.ended_jobs:,} of {humanize.counted(view.total, 'job')}"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [humanize.left(view.seconds_left)] if view.seconds_left is not None else []
    return ", ".join(parts)


@contextmanager
def _queue() -> Iterator[Callable[[values.LiveView], None]]:
    """Draw the queue: in place on a terminal; elsewhere print a line when something changes."""
    console = screen.out()
    if console.is_terminal:
        with rich.live.Live(console=console, auto_refresh=False, screen=False) as area:
            yield lambda live: area.update(rich.console.Group(*fleet_status.queue_tables(live)), refresh=True)
        return
    show, note = _on_change(_log), watching.noting("the board is live again")

    def line(live: values.LiveView) -> None:
        stale = live.summary.freshness.stale
        note((live.problem or "ZooKeeper does not answer") if stale else "")
        if not stale:
            show(humanize.listed(live.summary.jobs) or "no jobs")

    yield line


def _log(line: str) -> None:
    screen.say(f"{time.strftime('%H:%M:%S')}  {line}")
    screen.flush()
