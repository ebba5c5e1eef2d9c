"""Commands on jobs and batches: hold, release, resume, fail, delete, cancel, update-report."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import operator_options as common
from entrypoints.cli.operator_options import VerbOptions, with_options
from entrypoints.cli.options import Bid
from entrypoints.cli.render import actions
from entrypoints.cli.render.humanize import counted
from operations.bulk import Outcome, act_on_many, act_on_one, select
from operations.bulk import cancel as cancel_
from operations.holds import held_in, hold_collection, release_collection
from operations.job_list import JobFilter
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from pipeline.states import Event

_SELECT = ("ids", "profile", "batch", "older_than")
_SELECT_BY_STATE = ("ids", "profile", "batch", "state", "older_than")
_ACT = ("reason", "by", "dry_run", "json")


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline hold --collection demo --reason 'database maintenance'")(hold)
    app.command(epilog="Example: arkline release --collection demo")(release)
    app.command(epilog="Example: arkline resume --batch bid0000000001 --state failed --dry-run")(resume)
    app.command(epilog="Example: arkline fail jid0000000001 --reason 'the source was withdrawn'")(fail)
    app.command(epilog="Example: arkline delete --state failed --older-than 30d --reason 'never fixed'")(
        delete
    )
    app.command(epilog="Example: arkline cancel bid0000000001 --reason 'submitted by mistake'")(cancel)
    app.command("update-report", epilog="Example: arkline update-report bid0000000001")(update_report)


def _act(options: VerbOptions, event: Event, question: str = "") -> None:
    """Raise the event on the named or selected jobs and batches; `question` asks before more than a look."""
    named = common.are_named(options)
    with common.operator(options) as operator:
        names = options.ids if named and options.ids else select(operator.session, options.filter, event)
        single = named and len(names) == 1
        if options.seen is not None and not single:
            raise UsageRefused("--if-version is for one job or batch: name it")

        def act(dry_run: bool) -> Outcome:
            if single:
                return act_on_one(operator, event, names[0], seen=options.seen, dry_run=dry_run)
            with common.long_run(operator) as running:
                return act_on_many(running, event, names, dry_run=dry_run)

        if question and not options.dry_run and not options.yes and (planned := act(True).done):
            common.confirm(question.format(_count_or_name([result.id for result in planned])), options.yes)
        outcome = act(options.dry_run)
    common.show(outcome, as_json=options.json, single=single)


def _count_or_name(names: list[str]) -> str:
    return names[0] if len(names) == 1 else counted(len(names), "job or batch", "jobs or batches")


@with_options(*_SELECT, "seen", *_ACT)
def hold(
    options: VerbOptions,
    collection: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Hold the collection until it is released.")
    ] = None,
) -> None:
    """Hold pending jobs or a whole collection.

    A collection on hold accepts submissions; their batches and jobs wait. Jobs that have started continue.
    """
    if collection is None:
        _act(options, Event.HOLD)
        return
    _check_alone(options)
    with common.operator(options) as operator:
        profiles = Profiles(operator.settings.profiles)
        profiles.get(collection)
        if options.dry_run:
            screen.say(f"collection {collection} would be put on hold")
            return
        result = hold_collection(operator, profiles, collection)
    screen.emit(result) if options.json else actions.held(result)


def _check_alone(options: VerbOptions) -> None:
    if options.ids or options.filter != JobFilter() or options.seen is not None:
        raise UsageRefused("--collection means the whole collection: leave out ids, filters and --if-version")


@with_options(*_SELECT, "seen", *_ACT)
def release(
    options: VerbOptions,
    collection: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE", help="End the hold and release the collection's held batches and jobs."
        ),
    ] = None,
    keep_held: Annotated[
        bool,
        typer.Option(
            "--keep-held",
            help="With --collection: only end the hold; held batches and jobs stay held.",
        ),
    ] = False,
    jobs: Annotated[bool, typer.Option("--jobs", hidden=True)] = False,
) -> None:
    """Release held jobs, batches or a collection."""
    del jobs  # accepted as in 0.1.0, where it asked for what is now the default
    if collection is None:
        if keep_held:
            raise UsageRefused("--keep-held is for --collection; without it, name or select jobs and batches")
        _act(options, Event.RELEASE)
        return
    _check_alone(options)
    with common.operator(options) as operator:
        if options.dry_run:
            names = [] if keep_held else held_in(operator.session, collection)
            held = counted(len(names), "held job or batch", "held jobs and batches")
            screen.say(f"collection {collection} would be released, and {held} with it")
            return
        with common.long_run(operator) as running:
            result = release_collection(running, collection, keep_held=keep_held)
    if options.json:
        screen.emit(result)
        return
    actions.held(result)
    if result.released is not None:
        common.show(result.released, as_json=False, single=False)


@with_options(*_SELECT_BY_STATE, "seen", *_ACT)
def resume(options: VerbOptions) -> None:
    """Resume failed jobs at the step that failed.

    Files that were downloaded completely are not downloaded again.
    """
    _act(options, Event.RESUME)


@with_options(*_SELECT_BY_STATE, "seen", *_ACT)
def fail(options: VerbOptions) -> None:
    """Stop jobs that have not ended.

    Their locks and reserved space are freed. The batch's report lists them as failed.
    """
    _act(options, Event.FAIL)


@with_options(*_SELECT_BY_STATE, "seen", "yes", *_ACT)
def delete(options: VerbOptions) -> None:
    """Delete failed or held jobs and batches.

    The archive keeps who deleted them, when and why.
    """
    _act(options, Event.DELETE, "Delete {}? No later report to the depositor will say how they ended.")


@with_options("reason", "by", "yes", "dry_run", "json")
def cancel(options: VerbOptions, bid: Bid) -> None:
    """Stop every job of a batch.

    Jobs that have not ended fail, held jobs are deleted, and then the batch is reported.
    """
    with common.operator(options) as operator:
        if not options.dry_run:
            plan = cancel_(operator, bid, dry_run=True)
            common.confirm(f"Stop {counted(len(plan.done), 'job')} of {bid}?", options.yes)
        with common.long_run(operator) as running:
            outcome = cancel_(running, bid, dry_run=options.dry_run)
    common.show(outcome, as_json=options.json, single=False)


@with_options("seen", *_ACT)
def update_report(options: VerbOptions, bid: Bid) -> None:
    """Send the depositor the changes since the last report.

    No mail is sent if nothing changed.
    """
    with common.operator(options) as operator:
        outcome = act_on_one(operator, Event.UPDATE_REPORT, bid, seen=options.seen, dry_run=options.dry_run)
    common.show(outcome, as_json=options.json, single=True)
