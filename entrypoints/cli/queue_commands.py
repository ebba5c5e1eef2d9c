"""Commands on the whole fleet: pause, unpause, history, drain, space, cleanup, report."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_options as common
from entrypoints.cli.operator_options import VerbOptions, with_options
from entrypoints.cli.options import ID, Bid, Json
from entrypoints.cli.render import actions
from entrypoints.cli.render import fleet as drawn_fleet
from operations import holds
from operations.reports import report as report_
from operations.workers import drain as drain_
from operations.workers import taking
from operations.working_storage import clean_up, space_view
from pipeline.notify.report.text import as_text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline report bid0000000001")(report)
    app.command(epilog="Example: arkline pause --reason 'inventory maintenance'")(pause)
    app.command(epilog="Example: arkline unpause")(unpause)
    app.command(epilog="Example: arkline history demo")(history)
    app.command(epilog="Example: arkline drain worker1@host")(drain)
    app.command(epilog="Example: arkline space --json")(space)
    app.command(epilog="Example: arkline cleanup --older-than 7d --dry-run")(cleanup)


def report(bid: Bid, json: Json = False) -> None:
    """Print a batch's current report.

    For a failed job the report says why it failed and what to do.
    """
    settings = opened.settings()
    with opened.session(settings) as session:
        view = report_(session, bid, opened.archive(settings))
    screen.emit(view) if json else typer.echo(as_text(view), nl=False)


@with_options("reason", "by", "json")
def pause(options: VerbOptions) -> None:
    """Stop starting new jobs.

    Running jobs continue, and submissions are still accepted.
    """
    with common.operator(options) as operator:
        result = holds.pause(operator)
    screen.emit(result) if options.json else actions.held(result)


@with_options("reason", "by", "json")
def unpause(options: VerbOptions) -> None:
    """Start new jobs again."""
    with common.operator(options) as operator:
        result = holds.unpause(operator)
    screen.emit(result) if options.json else actions.held(result)


def history(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="BID|COLLECTION", help="A batch or a collection; the queue if left out."),
    ] = None,
    json: Json = False,
) -> None:
    """Show who did what to a batch, a collection or the queue.

    The last 200 moves of a batch and the last 100 holds, releases and pauses are kept. `arkline timeline`
    has the history of a job.
    """
    with opened.session(opened.settings()) as session:
        if subject is not None and ID["bid"].fullmatch(subject):
            batch = holds.batch_history(session, common.principal(), subject)
            screen.emit(batch) if json else actions.batch_history(batch)
            return
        view = holds.history(session, common.principal(), subject)
    screen.emit(view) if json else actions.history(view)


def drain(
    context: typer.Context,
    worker: Annotated[
        str | None,
        typer.Argument(metavar="WORKER", help="A worker, as worker1@host; lists the workers if left out."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let the worker take jobs again.")] = False,
    json: Json = False,
) -> None:
    """Stop a worker from taking new jobs.

    It finishes the jobs it has, and can then be stopped. When it is restarted, it takes jobs again.
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
    """Show working storage and the jobs that reserve it."""
    settings = opened.settings()
    with opened.session(settings) as session:
        view = space_view(session, settings)
    screen.emit(view) if json else drawn_fleet.space(view)


@with_options("older_than", "by", "dry_run", "json")
def cleanup(options: VerbOptions) -> None:
    """Archive old batches and remove unused folders.

    Completed batches older than the retention time move from ZooKeeper to the archive; the retention time of
    a collection's profile applies in any case. Beat does the same regularly. Working directories without a
    job that needs them are removed.
    """
    with common.operator(options) as operator:
        result = clean_up(operator, older_than=options.older_than, dry_run=options.dry_run)
    screen.emit(result) if options.json else drawn_fleet.cleaned(result)
