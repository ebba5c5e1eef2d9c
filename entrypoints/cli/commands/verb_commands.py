"""Commands on jobs and batches: hold, release, resume, fail, delete, cancel, update-report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import acting, api, completion, selection
from entrypoints.cli.options import Bid, SharedOptions, command
from entrypoints.render import screen, views
from operations.verbs import bulk, holds, verbs
from pipeline import humanize
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.states import JOB, Event, JobState, Raiser

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.verbs.bulk import Outcome
    from operations.verbs.holds import HoldResult

_SELECT = ("ids", "profile", "batch", "older_than")
_SELECT_BY_STATE = ("ids", "profile", "batch", "state", "older_than")
_ACT = ("reason", "by", "dry_run", "json")
_REPEATABLE = tuple(dict.fromkeys(row.target for row in JOB.rows(JobState.FAILED, Event.RESUME) if row.named))


def _act(options: SharedOptions, event: Event, question: str = "", to: JobState | None = None) -> None:
    """Raise the event on the named or selected jobs and batches, if the answer to `question` is yes.

    `to`: the state in which jobs are to be resumed.
    """
    named = selection.are_named(options)
    names = options.ids or []
    single = named and len(names) == 1
    if options.version is not None and not single:
        raise UsageRefused("--if-version is for one job or batch: name it")
    with api.site(options.by) as site:
        if single:
            outcome = _on_one(site, options, event, names[0], question, to)
        elif any(name.startswith("bid") for name in names):
            outcome = _on_each(site, options, event, names, question, to)
        else:
            outcome = _on_many(site, options, event, names, question, to)
    acting.show(outcome, as_json=options.json, single=single and not _resumes_a_batch(event, names[0]))


def _on_one(
    site: Client, options: SharedOptions, event: Event, name: str, question: str, to: JobState | None
) -> Outcome:
    """The outcome of the verb, or of its dry run; raises what refuses it."""
    if options.dry_run:
        return _raise(site, options, event, name, to, dry_run=True)
    if question and not options.yes:
        _raise(site, options, event, name, to, dry_run=True)
        acting.confirm(question.format(name), options.yes)
    return _raise(site, options, event, name, to)


def _raise(
    site: Client,
    options: SharedOptions,
    event: Event,
    name: str,
    to: JobState | None,
    *,
    dry_run: bool = False,
) -> Outcome:
    whole = _resumes_a_batch(event, name)
    if not whole:
        verbs.check_kind(name, event)
    path = f"{api.path_of(name)}/{event}"
    body: dict[str, object] = {"reason": options.reason}
    if to is not None:
        body["to"] = to
    condition = api.if_match(options.version)
    with acting.attended(site):
        if dry_run:
            return site.post(f"{path}/dry-run", bulk.Outcome, body, **condition)
        if whole:
            return site.post(path, bulk.Outcome, body, **condition)
        return bulk.Outcome(verb=event, done=(site.post(path, verbs.VerbResult, body, **condition),))


def _on_each(
    site: Client, options: SharedOptions, event: Event, names: list[str], question: str, to: JobState | None
) -> Outcome:
    """One after the other: a refusal of one job or batch does not stop the others."""
    if question and not options.dry_run and not options.yes:
        planned = _each(site, options, event, names, to, dry_run=True).done
        if planned:
            acting.confirm(question.format(_count_or_name([one.id for one in planned])), options.yes)
    return _each(site, options, event, names, to, dry_run=options.dry_run)


def _each(
    site: Client,
    options: SharedOptions,
    event: Event,
    names: list[str],
    to: JobState | None,
    *,
    dry_run: bool,
) -> Outcome:
    parts: list[Outcome] = []
    for number, name in enumerate(names):
        try:
            parts.append(_raise(site, options, event, name, to, dry_run=dry_run))
        except ServiceUnreachable as error:
            parts.append(bulk.Outcome(verb=event, untried=len(names) - number, stopped=str(error)))
            break
        except ArklineError as error:
            parts.append(bulk.Outcome(verb=event, refused=(bulk.Refusal(id=name, message=str(error)),)))
    return _whole(event, parts, dry_run=dry_run)


def _on_many(
    site: Client, options: SharedOptions, event: Event, names: list[str], question: str, to: JobState | None
) -> Outcome:
    """A dry run, and then exactly what it showed; of the jobs of a filter without a state, only those to
    which the event may happen."""
    chosen = names or _selected(site, options, event)
    size = bulk.JOBS_OF_A_PLAN
    plans = []
    for start in range(0, len(chosen), size):
        body = {"select": {"ids": chosen[start : start + size]}, "to": to}
        with acting.attended(site):
            plans.append(site.post(f"/v1/bulk/{event}/dry-run", bulk.BulkPlan, body))
    if not names and options.state is None and not options.cause:
        plans = [plan.model_copy(update={"refused": ()}) for plan in plans]
    expected = [result for plan in plans for result in plan.expected]
    if options.dry_run:
        parts = [bulk.Outcome(verb=event, done=plan.expected, refused=plan.refused) for plan in plans]
        return _whole(event, parts, dry_run=True)
    if question and expected:
        acting.confirm(question.format(_count_or_name([result.id for result in expected])), options.yes)
    parts = []
    for number, plan in enumerate(plans):
        parts.append(_carried_out(site, plan, options.reason))
        if parts[-1].untried:
            untried = sum(plan.jobs for plan in plans[number + 1 :])
            parts.append(bulk.Outcome(verb=event, untried=untried, stopped=parts[-1].stopped))
            break
    return _whole(event, parts)


def _selected(site: Client, options: SharedOptions, event: Event) -> list[str]:
    """The jobs of the filter; without a state in it, those in a state in which the event may happen."""
    possible = {row.source for row in JOB.table if row.event is event and Raiser.OPERATOR in row.by}
    by_state = options.state is not None or options.cause
    return [row.jid for row in selection.every_job(site, options) if by_state or row.state in possible]


def _carried_out(site: Client, plan: bulk.BulkPlan, reason: str) -> Outcome:
    if not plan.jobs:
        return bulk.Outcome(verb=plan.verb, refused=plan.refused)
    with acting.attended(site):
        body = {"token": plan.token, "reason": reason}
        receipt = site.post(f"/v1/bulk/{plan.verb}", bulk.Receipt, body)
    return bulk.Outcome(
        verb=plan.verb,
        done=receipt.done,
        refused=(*plan.refused, *receipt.refused, *receipt.moved),
        untried=receipt.untried,
        stopped=receipt.stopped,
    )


def _whole(event: Event, parts: list[Outcome], *, dry_run: bool = False) -> Outcome:
    return bulk.Outcome(
        verb=event,
        dry_run=dry_run,
        done=tuple(result for part in parts for result in part.done),
        refused=tuple(refusal for part in parts for refusal in part.refused),
        untried=sum(part.untried for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped), ""),
    )


def _resumes_a_batch(event: Event, name: str) -> bool:
    """Whether a batch is named, whose failed jobs are resumed: the result is a list of jobs."""
    return event is Event.RESUME and name.startswith("bid")


def _count_or_name(names: list[str]) -> str:
    return names[0] if len(names) == 1 else humanize.counted(len(names), "job or batch", "jobs or batches")


@command("arkline hold --collection demo --reason 'database maintenance'", *_SELECT, "version", *_ACT)
def hold(
    options: SharedOptions,
    collection: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            autocompletion=completion.profiles,
            help="Hold the collection until it is released.",
        ),
    ] = None,
) -> None:
    """Hold pending jobs or a whole collection.

    A collection on hold accepts submissions; their batches and jobs wait. Jobs that have started continue.
    """
    if collection is None:
        _act(options, Event.HOLD)
        return
    _check_alone(options)
    path, body = f"/v1/collections/{api.quoted(collection)}/hold", {"reason": options.reason}
    with api.site(options.by) as site:
        if options.dry_run:
            site.post(f"{path}/dry-run", holds.HoldResult, {})
            screen.say(f"collection {collection} would be put on hold")
            return
        result = site.post(path, holds.HoldResult, body)
    screen.emit(result) if options.json else views.held(result)


def _check_alone(options: SharedOptions) -> None:
    if options.ids or selection.is_filtered(options) or options.version is not None:
        raise UsageRefused("--collection means the whole collection: leave out ids, filters and --if-version")


@command("arkline release --collection demo", *_SELECT, "version", *_ACT)
def release(
    options: SharedOptions,
    collection: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            autocompletion=completion.profiles,
            help="End the hold and release the collection's held batches and jobs.",
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
    path = f"/v1/collections/{api.quoted(collection)}/release"
    query = "?keep_held=true" if keep_held else ""
    with api.site(options.by) as site, acting.attended(site):
        if options.dry_run:
            planned = site.post(f"{path}/dry-run{query}", holds.HoldResult, {}).released
            names = planned.done if planned else ()
            held = humanize.counted(len(names), "held job or batch", "held jobs and batches")
            screen.say(f"collection {collection} would be released, and {held} with it")
            return
        result = site.post(f"{path}{query}", holds.HoldResult, {"reason": options.reason})
    _show_released(result, as_json=options.json)


def _show_released(result: HoldResult, *, as_json: bool) -> None:
    if as_json:
        screen.emit(result)
        return
    views.held(result)
    if result.released is not None:
        acting.show(result.released, as_json=False, single=False)


@command(
    "arkline resume --batch bid0000000001 --state failed --dry-run",
    *_SELECT_BY_STATE,
    "cause",
    "version",
    *_ACT,
)
def resume(
    options: SharedOptions,
    step: Annotated[
        JobState | None,
        typer.Option(
            "--from",
            metavar="STATE",
            help=f"Begin with this step: {', '.join(_REPEATABLE)}, as far as the job got before it failed.",
        ),
    ] = None,
) -> None:
    """Resume failed jobs at the step that failed; of a batch, all of them.

    Files that were downloaded completely are not downloaded again. A job that lost its reservation of working
    storage takes a new one first.
    """
    _act(options, Event.RESUME, to=step)


@command(
    "arkline fail jid0000000001 --reason 'the source was withdrawn'", *_SELECT_BY_STATE, "version", *_ACT
)
def fail(options: SharedOptions) -> None:
    """Stop jobs that have not ended.

    Their locks and reserved space are freed. The batch's report lists them as failed.
    """
    _act(options, Event.FAIL)


@command(
    "arkline delete --state failed --older-than 30d --reason 'never fixed'",
    *_SELECT_BY_STATE,
    "cause",
    "version",
    "yes",
    *_ACT,
)
def delete(options: SharedOptions) -> None:
    """Delete failed or held jobs and batches.

    The archive keeps who deleted them, when and why.
    """
    _act(
        options,
        Event.DELETE,
        "Delete {}? Reports to the depositor will list them as deleted, with your reason.",
    )


@command("arkline cancel bid0000000001 --reason 'submitted by mistake'", "yes", *_ACT)
def cancel(options: SharedOptions, bid: Bid) -> None:
    """Stop a batch.

    Its split or its report ends. Jobs that have not ended fail, held jobs are deleted, and the batch is
    reported.
    """
    path, body = f"/v1/batches/{bid}/cancel", {"reason": options.reason}
    with api.site(options.by) as site:
        if options.dry_run or not options.yes:
            plan = site.post(f"{path}/dry-run", bulk.Outcome, {})
        if options.dry_run:
            acting.show(plan, as_json=options.json, single=False)
        if not options.yes:
            jobs = sum(result.id != bid for result in plan.done)
            named = f"{humanize.counted(jobs, 'job')} of {bid}" if jobs else bid
            acting.confirm(f"Stop {named}?", options.yes)
        with acting.attended(site):
            outcome = site.post(path, bulk.Outcome, body)
    acting.show(outcome, as_json=options.json, single=False)


@command("arkline update-report bid0000000001", "version", *_ACT)
def update_report(options: SharedOptions, bid: Bid) -> None:
    """Send the depositor the changes since the last report.

    No mail is sent if nothing changed.
    """
    with api.site(options.by) as site:
        outcome = _on_one(site, options, Event.UPDATE_REPORT, bid, "", None)
    acting.show(outcome, as_json=options.json, single=True)
