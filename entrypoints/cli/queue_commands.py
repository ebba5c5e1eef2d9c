"""What operators do to the whole: pause, unpause, drain, space, cleanup, report."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_options as acting
from entrypoints.cli.operator_options import By, DryRun, Reason
from entrypoints.cli.options import Bid, Json, OlderThan
from entrypoints.cli.render import fleet as drawn_fleet
from operations.holds import pause as pause_
from operations.holds import unpause as unpause_
from operations.reports import report as report_
from operations.workers import drain as drain_
from operations.workers import taking
from operations.working_storage import clean_up, space_view
from pipeline.notify.report.text import as_text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline report bid0000000001")(report)
    app.command(epilog="Example: arkline pause --reason 'the inventory is moved'")(pause)
    app.command(epilog="Example: arkline unpause")(unpause)
    app.command(epilog="Example: arkline drain worker1@host")(drain)
    app.command(epilog="Example: arkline space --json")(space)
    app.command(epilog="Example: arkline cleanup --older-than 7d --dry-run")(cleanup)


def report(bid: Bid, json: Json = False) -> None:
    """Print a batch's report as it stands now.

    It says of each failed job why it failed and what to do.
    """
    settings = opened.settings()
    with opened.session(settings) as session:
        found = report_(session, bid, opened.archive(settings))
    screen.emit(found) if json else typer.echo(as_text(found), nl=False)


def pause(context: typer.Context, reason: Reason = "", by: By = "", json: Json = False) -> None:
    """Take up no further job.

    What is at work goes on, and submissions are still accepted.
    """
    with acting.operator(context, by, reason) as operator:
        stopped = pause_(operator)
    screen.emit(stopped) if json else drawn_fleet.stopped(stopped)


def unpause(context: typer.Context, by: By = "", json: Json = False) -> None:
    """Let the queue go on."""
    with acting.operator(context, by, "") as operator:
        stopped = unpause_(operator)
    screen.emit(stopped) if json else drawn_fleet.stopped(stopped)


def drain(
    context: typer.Context,
    worker: Annotated[
        str | None,
        typer.Argument(metavar="WORKER", help="As worker1@host; without it, workers are listed."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take jobs again.")] = False,
    json: Json = False,
) -> None:
    """Let a worker take nothing new.

    It ends what it has, and can then be stopped. Its restart undoes this.
    """
    settings = opened.settings()
    opened.quiet_logs(bool(context.obj))
    if worker is None:
        workers = taking(settings)
        screen.emit(workers) if json else drawn_fleet.workers(workers)
        return
    done = drain_(settings, worker, undo=undo)
    screen.emit(done) if json else drawn_fleet.workers({done.worker: done.queues})


def space(json: Json = False) -> None:
    """Show working storage, and who was promised what."""
    settings = opened.settings()
    with opened.session(settings) as session:
        found = space_view(session, settings)
    screen.emit(found) if json else drawn_fleet.space(found)


def cleanup(
    context: typer.Context,
    older_than: OlderThan = None,
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Archive old batches and remove forgotten folders.

    Completed batches older than the retention time move from ZooKeeper to the archive; the time that
    a collection's profile gives is kept in any case. Beat does this by itself from time to time.
    Working directories of jobs that are gone are removed.
    """
    with acting.operator(context, by, "") as operator:
        done = clean_up(operator, older_than=older_than, dry_run=dry_run)
    screen.emit(done) if json else drawn_fleet.tidied(done)
