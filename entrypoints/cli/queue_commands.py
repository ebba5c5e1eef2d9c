"""Commands on the whole fleet: pause, unpause, history, drain, space, cleanup, report."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes, sites
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import ID, Bid, Json, SharedOptions, command, read_duration
from entrypoints.cli.remote import maintenance as remote_maintenance
from entrypoints.cli.remote import verbs as remote_verbs
from entrypoints.cli.render import actions
from entrypoints.cli.render import fleet as drawn_fleet
from operations import holds, working_storage
from operations import workers as fleet_workers
from pipeline.notify.report import text
from pipeline.notify.report import text as report_text

if TYPE_CHECKING:
    from operations.holds import HoldResult
    from operations.operator import Operator
    from operations.workers import Workers


@command("arkline report bid0000000001")
def report(
    bid: Bid,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print a table with the ARK of each object, for spreadsheets.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a batch's current report.

    For a failed job the report says why it failed and what to do. Once the batch is archived, its reports are
    printed as they were mailed; --json and --csv print the last state.
    """
    if csv and json:
        raise typer.BadParameter("give --csv or --json, not both", param_hint="--csv")
    with sites.site() as site:
        view = site.report(bid)
        sent = () if json or csv else site.sent_texts(bid)
    if json:
        screen.emit(view)
    else:
        typer.echo(text.as_csv(view) if csv else "\n".join(sent) or report_text.as_text(view), nl=False)


@command("arkline pause --reason 'inventory maintenance'", "reason", "by", "json")
def pause(options: SharedOptions) -> None:
    """Stop starting new jobs.

    Running jobs continue, and submissions are still accepted.
    """
    result = _on_queue(options, "pause", holds.pause)
    screen.emit(result) if options.json else actions.held(result)


@command("arkline unpause", "reason", "by", "json")
def unpause(options: SharedOptions) -> None:
    """Start new jobs again."""
    result = _on_queue(options, "unpause", holds.unpause)
    screen.emit(result) if options.json else actions.held(result)


def _on_queue(options: SharedOptions, verb: str, act: "Callable[[Operator], HoldResult]") -> "HoldResult":
    if (remote := sites.client()) is not None:
        return remote_verbs.hold(remote, f"/v1/queue/{verb}", options.reason)
    with common.operator(options) as operator:
        return act(operator)


@command("arkline history demo")
def history(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="BID|COLLECTION", help="A batch or a collection; the fleet if left out."),
    ] = None,
    json: Json = False,
) -> None:
    """Show who did what to a batch, a collection or the fleet.

    The history of the fleet has pauses, drains and clean-ups. The last 200 moves of a batch are kept, and the
    last 100 actions on the fleet and on a collection. `arkline timeline` has the history of a job.
    """
    with sites.site() as site:
        if subject is not None and ID["bid"].fullmatch(subject):
            batch = site.batch_history(subject)
            screen.emit(batch) if json else actions.batch_history(batch)
            return
        view = site.actions(subject)
    screen.emit(view) if json else actions.history(view)


@command("arkline drain worker1@host", "reason", "by", "json")
def drain(
    options: SharedOptions,
    worker: Annotated[
        str | None,
        typer.Argument(metavar="WORKER", help="A worker, as worker1@host; lists the workers if left out."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let the worker take jobs again.")] = False,
) -> None:
    """Stop a worker from taking new jobs.

    It finishes the jobs it has, and can then be stopped. Restarted, it stays drained until --undo. The exit
    code is 1 if the worker still takes jobs, or does not answer, after 15 seconds.
    """
    remote = sites.client()
    if worker is None:
        fleet = remote_verbs.workers(remote) if remote else _workers()
        screen.emit(fleet.taking) if options.json else drawn_fleet.workers(fleet)
        return
    if remote is not None:
        done = remote_verbs.drain(remote, worker, options.reason, undo=undo)
    else:
        with common.operator(options) as operator:
            done = fleet_workers.drain(operator, worker, undo=undo)
    screen.emit(done) if options.json else drawn_fleet.drained(done)
    raise typer.Exit(0 if undo or done.followed else exit_codes.FAILED)


def _workers() -> "Workers":
    opened.quiet_logs()
    with opened.site() as site:
        return fleet_workers.listed(site, common.principal())


@command("arkline space --json")
def space(json: Json = False) -> None:
    """Show working storage and the jobs that reserve it."""
    with sites.site() as site:
        view = site.space()
    screen.emit(view) if json else drawn_fleet.space(view)


@command("arkline cleanup --older-than 7d --dry-run", "reason", "by", "dry_run", "json")
def cleanup(
    options: SharedOptions,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=read_duration,
            help="Archive batches that completed longer ago than this, as 7d; default: ARKLINE_RETENTION.",
        ),
    ] = None,
) -> None:
    """Archive old batches and remove unused folders.

    Completed batches older than the retention time move from ZooKeeper to the archive; the retention time of
    a collection's profile applies in any case. Beat does the same regularly. Working directories without a
    job that needs them are removed.
    """
    if (remote := sites.client()) is not None:
        result = remote_maintenance.clean_up(remote, older_than, options.reason, dry_run=options.dry_run)
    else:
        with common.operator(options) as operator:
            result = working_storage.clean_up(operator, older_than=older_than, dry_run=options.dry_run)
    screen.emit(result) if options.json else drawn_fleet.cleaned(result)
