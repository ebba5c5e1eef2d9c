"""What operators do to jobs and batches: hold, release, resume, fail, delete, cancel, update-report."""

# ruff: noqa: PLR0913 - each argument of a command is an option of the command line

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import operator_options as acting
from entrypoints.cli.operator_options import By, DryRun, Ids, Reason, Yes
from entrypoints.cli.options import Batch, Bid, Json, OlderThan, Profile, State
from entrypoints.cli.render import fleet as drawn_fleet
from operations.bulk import Outcome, act_on_many, act_on_one, select
from operations.bulk import cancel as cancel_
from operations.holds import held_in, hold_collection, release_collection
from operations.job_list import JobFilter
from operations.wording import counted
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from pipeline.states import Event

Collection = Annotated[
    str | None, typer.Option(metavar="PROFILE", help="The whole collection, until it is released.")
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline hold --collection demo --reason 'database is moved'")(hold)
    app.command(epilog="Example: arkline release --collection demo --jobs")(release)
    app.command(epilog="Example: arkline resume --batch bid0000000001 --state failed --dry-run")(resume)
    app.command(epilog="Example: arkline fail jid0000000001 --reason 'the source is withdrawn'")(fail)
    app.command(epilog="Example: arkline delete --state failed --older-than 30d --reason 'never mended'")(
        delete
    )
    app.command(epilog="Example: arkline cancel bid0000000001 --reason 'submitted by mistake'")(cancel)
    app.command("update-report", epilog="Example: arkline update-report bid0000000001")(update_report)


def _filter(profile: str | None, batch: str | None, state: str | None, older_than: float | None) -> JobFilter:
    return JobFilter.model_validate(
        {"profile": profile, "bid": batch, "state": state, "older_than": older_than}
    )


def _act(
    context: typer.Context,
    event: Event,
    ids: list[str] | None,
    wanted: JobFilter,
    *,
    by: str,
    reason: str,
    dry_run: bool,
    json: bool,
    question: str = "",
    yes: bool = True,
) -> None:
    is_named = acting.named(ids, wanted)
    with acting.operator(context, by, reason) as operator:
        names = ids if is_named and ids else select(operator.session, wanted, event)
        single = is_named and len(names) == 1

        def act(rehearsal: bool) -> Outcome:
            if single:
                return act_on_one(operator, event, names[0], dry_run=rehearsal)
            return act_on_many(operator, event, names, dry_run=rehearsal)

        if question and not dry_run and not yes and (planned := act(True).done):
            acting.confirm(question.format(_enumerated([acted.id for acted in planned])), yes)
        outcome = act(dry_run)
    acting.show(outcome, as_json=json, single=single)


def _enumerated(names: list[str]) -> str:
    return names[0] if len(names) == 1 else counted(len(names), "job or batch", "jobs or batches")


def hold(
    context: typer.Context,
    ids: Ids = None,
    collection: Collection = None,
    profile: Profile = None,
    batch: Batch = None,
    older_than: OlderThan = None,
    reason: Reason = "",
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Keep back pending jobs, or a whole collection."""
    wanted = _filter(profile, batch, None, older_than)
    if collection is None:
        _act(context, Event.HOLD, ids, wanted, by=by, reason=reason, dry_run=dry_run, json=json)
        return
    _check_alone(ids, wanted)
    with acting.operator(context, by, reason) as operator:
        profiles = Profiles(operator.settings.profiles)
        profiles.get(collection)
        if dry_run:
            screen.say(f"{collection} would be put on hold")
            return
        stopped = hold_collection(operator, profiles, collection)
    screen.emit(stopped) if json else drawn_fleet.stopped(stopped)


def _check_alone(ids: list[str] | None, wanted: JobFilter) -> None:
    if ids or wanted != JobFilter():
        raise UsageRefused("--collection means the whole collection: leave out ids and filters")


def release(
    context: typer.Context,
    ids: Ids = None,
    collection: Collection = None,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="With --collection: also release all that it kept back.")
    ] = False,
    profile: Profile = None,
    batch: Batch = None,
    older_than: OlderThan = None,
    reason: Reason = "",
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Let what is held go on."""
    wanted = _filter(profile, batch, None, older_than)
    if collection is None:
        if jobs:
            raise UsageRefused("--jobs goes with --collection; without it, name the jobs or choose them")
        _act(context, Event.RELEASE, ids, wanted, by=by, reason=reason, dry_run=dry_run, json=json)
        return
    _check_alone(ids, wanted)
    with acting.operator(context, by, reason) as operator:
        if dry_run:
            kept = held_in(operator.session, collection)
            released = (
                f" and {counted(len(kept), 'job or batch', 'jobs and batches')} with it" if jobs else ""
            )
            screen.say(f"{collection} would be released{released}")
            return
        done = release_collection(operator, collection, keep_held=not jobs)
    if json:
        screen.emit(done)
        return
    drawn_fleet.stopped(done)
    if done.released is not None:
        acting.show(done.released, as_json=False, single=False)


def resume(
    context: typer.Context,
    ids: Ids = None,
    profile: Profile = None,
    batch: Batch = None,
    state: State = None,
    older_than: OlderThan = None,
    reason: Reason = "",
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Let failed jobs go on after their last success.

    What was fetched and is whole is not fetched again.
    """
    wanted = _filter(profile, batch, state, older_than)
    _act(context, Event.RESUME, ids, wanted, by=by, reason=reason, dry_run=dry_run, json=json)


def fail(
    context: typer.Context,
    ids: Ids = None,
    profile: Profile = None,
    batch: Batch = None,
    state: State = None,
    older_than: OlderThan = None,
    reason: Reason = "",
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Stop jobs that have not ended.

    Their locks and promises of space are freed. The batch's report tells the depositor.
    """
    wanted = _filter(profile, batch, state, older_than)
    _act(context, Event.FAIL, ids, wanted, by=by, reason=reason, dry_run=dry_run, json=json)


def delete(
    context: typer.Context,
    ids: Ids = None,
    profile: Profile = None,
    batch: Batch = None,
    state: State = None,
    older_than: OlderThan = None,
    reason: Reason = "",
    by: By = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Take out what failed or is held.

    Who did it, when and why stays in the archive.
    """
    wanted = _filter(profile, batch, state, older_than)
    _act(
        context,
        Event.DELETE,
        ids,
        wanted,
        by=by,
        reason=reason,
        dry_run=dry_run,
        json=json,
        question="Delete {}? No later report to the depositor will say how they ended.",
        yes=yes,
    )


def cancel(
    context: typer.Context,
    bid: Bid,
    reason: Reason = "",
    by: By = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Stop a whole batch.

    Every job of it that has not ended fails, held ones are deleted, and then it is reported.
    """
    with acting.operator(context, by, reason) as operator:
        if not dry_run:
            plan = cancel_(operator, bid, dry_run=True)
            acting.confirm(f"Stop {counted(len(plan.done), 'job')} of {bid}?", yes)
        outcome = cancel_(operator, bid, dry_run=dry_run)
    acting.show(outcome, as_json=json, single=False)


def update_report(
    context: typer.Context,
    bid: Bid,
    reason: Reason = "",
    by: By = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Tell the depositor what changed since the report.

    No mail is sent if nothing did.
    """
    with acting.operator(context, by, reason) as operator:
        outcome = act_on_one(operator, Event.UPDATE_REPORT, bid, dry_run=dry_run)
    acting.show(outcome, as_json=json, single=True)
