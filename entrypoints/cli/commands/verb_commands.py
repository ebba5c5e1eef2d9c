"""Commands for jobs and batches: the verbs of an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from entrypoints.cli import acting, api, completion, exit_codes, selection
from entrypoints.cli.options import Bid, SharedOptions, command, read_id
from entrypoints.render import screen, views
from operations.verbs import bulk, holds, verbs
from pipeline import humanize
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.states import JOB, Event, JobState, Raiser

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.verbs.bulk import Outcome
    from operations.verbs.holds import HoldResult
    from operations.verbs.verbs import Resumption

_SELECT_JOBS = ("profile", "batch", "older_than")
_SELECT_JOBS_BY_STATE = ("profile", "batch", "state", "older_than")
CANCEL, REPAIR = "cancel", "repair"
"""Verbs that are not events of a table."""

_ACT = ("reason", "by", "dry_run", "json")
_IDS = "done.id"
_REPEATABLE = tuple(dict.fromkeys(row.target for row in JOB.rows(JobState.FAILED, Event.RESUME) if row.named))


class _Act(Protocol):
    """A verb on its jobs and batches."""

    def __call__(self, *, dry_run: bool) -> Outcome: ...


def _act(
    options: SharedOptions,
    event: Event,
    question: Callable[[Outcome], str] | None = None,
    how: Resumption | None = None,
) -> None:
    """Raise the event on the named or selected jobs and batches, once `question` is confirmed.

    `how`: jobs are resumed.
    """
    single = selection.are_named(options) and len(options.named) == 1
    if options.version is not None and not single:
        raise UsageRefused("--if-version is for one job or batch: name it")
    with api.site(options.by) as site:
        names = options.named or _selected(site, options, event)
        act: _Act
        if single:
            act = partial(_raise, site, options, event, names[0], how)
            single = not _is_whole(event, names[0])
        elif any(name.startswith("bid") for name in names):
            act = partial(_on_each, site, options, event, names, how)
        else:
            act = _planned(site, options, event, names, how)
        outcome = _decided(options, act, question)
    acting.show(outcome, as_json=options.json, single=single)


def _decided(options: SharedOptions, act: _Act, question: Callable[[Outcome], str] | None) -> Outcome:
    """The outcome of the dry run, or of the verb once `question` about the dry run is confirmed."""
    if options.dry_run or (question is not None and not options.yes):
        expected = act(dry_run=True)
        if options.dry_run:
            return expected
        if question is not None and expected.done:
            acting.confirm(question(expected), options.yes)
    return act(dry_run=False)


def _raise(
    site: Client,
    options: SharedOptions,
    verb: str,
    name: str,
    how: Resumption | None = None,
    *,
    dry_run: bool,
) -> Outcome:
    """The outcome of the verb, or of its dry run; raises any refusal."""
    if verb != REPAIR and not _is_whole(verb, name):
        verbs.check_kind(name, Event(verb))
    path = f"{api.path_of(name)}/{verb}"
    body = {"reason": options.reason, **_fields(how)}
    condition = api.if_match(options.version)
    if dry_run or _is_whole(verb, name):
        return acting.post(site, f"{path}/dry-run" if dry_run else path, bulk.Outcome, body, **condition)
    result = acting.post(site, path, verbs.VerbResult, body, **condition)
    return bulk.Outcome(verb=verb, done=(result,))


def _is_whole(verb: str, name: str) -> bool:
    """Whether the verb acts on the jobs of a batch, so that the result is a list."""
    return verb in (Event.RESUME, CANCEL) and name.startswith("bid")


def _on_each(
    site: Client,
    options: SharedOptions,
    verb: str,
    names: list[str],
    how: Resumption | None = None,
    *,
    dry_run: bool,
) -> Outcome:
    """Act on each in turn: a refusal of one job or batch does not stop the others."""
    parts: list[Outcome] = []
    for number, name in enumerate(names):
        try:
            parts.append(_raise(site, options, verb, name, how, dry_run=dry_run))
        except ServiceUnreachable as error:
            parts.append(bulk.Outcome(verb=verb, untried=len(names) - number, stopped=str(error)))
            break
        except ArklineError as error:
            parts.append(bulk.Outcome(verb=verb, refused=(bulk.Refusal(id=name, message=str(error)),)))
    return _together(verb, parts, dry_run=dry_run)


def _fields(how: Resumption | None) -> dict[str, object]:
    """The fields of a request; a site of an earlier release knows no others than those that are given."""
    return {} if how is None else how.model_dump(mode="json", exclude_defaults=True)


def _planned(
    site: Client, options: SharedOptions, event: Event, names: list[str], how: Resumption | None
) -> _Act:
    """Dry-run, then do exactly what it showed; a filter without a state covers only jobs that allow the
    event."""
    plans = []
    for start in range(0, len(names), bulk.JOBS_OF_A_PLAN):
        body = {"select": {"ids": names[start : start + bulk.JOBS_OF_A_PLAN]}, **_fields(how)}
        plans.append(acting.post(site, f"/v1/bulk/{event}/dry-run", bulk.BulkPlan, body))
    if not options.named and options.state is None and not options.cause and not (how and how.findings):
        plans = [plan.model_copy(update={"refused": ()}) for plan in plans]

    def act(*, dry_run: bool) -> Outcome:
        parts: list[Outcome] = []
        for plan in plans:
            if dry_run:
                parts.append(bulk.Outcome(verb=event, done=plan.expected, refused=plan.refused))
            elif any(part.untried for part in parts):
                parts.append(bulk.Outcome(verb=event, untried=plan.jobs))
            else:
                parts.append(_carried_out(site, plan, options.reason))
        return _together(event, parts, dry_run=dry_run)

    return act


def _selected(site: Client, options: SharedOptions, event: Event) -> list[str]:
    """The jobs that match the filter; without a state in it, those whose state allows the event."""
    possible = {row.source for row in JOB.table if row.event is event and Raiser.OPERATOR in row.by}
    by_state = options.state is not None or options.cause
    return [row.jid for row in selection.every_job(site, options) if by_state or row.state in possible]


def _carried_out(site: Client, plan: bulk.BulkPlan, reason: str) -> Outcome:
    if not plan.jobs:
        return bulk.Outcome(verb=plan.verb, refused=plan.refused)
    receipt = acting.post(
        site, f"/v1/bulk/{plan.verb}", bulk.Receipt, {"token": plan.token, "reason": reason}
    )
    return bulk.Outcome(
        verb=plan.verb,
        done=receipt.done,
        refused=(*plan.refused, *receipt.refused, *receipt.moved),
        untried=receipt.untried,
        stopped=receipt.stopped,
    )


def _together(verb: str, parts: list[Outcome], *, dry_run: bool) -> Outcome:
    return bulk.Outcome(
        verb=verb,
        dry_run=dry_run,
        done=tuple(result for part in parts for result in part.done),
        refused=tuple(refusal for part in parts for refusal in part.refused),
        untried=sum(part.untried for part in parts),
        stopped=next((part.stopped for part in parts if part.stopped), ""),
    )


def _on_collection(options: SharedOptions, name: str, verb: str, query: str = "") -> HoldResult:
    """Hold or release the whole collection, or show in a dry run what would change."""
    if options.named or selection.is_filtered(options) or options.version is not None:
        raise UsageRefused("--collection means the whole collection: leave out ids, filters and --if-version")
    path = f"/v1/collections/{api.quoted(name)}/{verb}{'/dry-run' if options.dry_run else ''}{query}"
    with api.site(options.by) as site:
        return acting.post(site, path, holds.HoldResult, {"reason": options.reason})


@command(
    "arkline hold --collection demo --reason 'database maintenance'",
    "jids",
    *_SELECT_JOBS,
    "version",
    *_ACT,
    ids=_IDS,
)
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
    result = _on_collection(options, collection, "hold")
    if options.json:
        screen.emit(result)
    elif options.dry_run:
        screen.say(f"collection {collection} would be put on hold")
    else:
        views.held(result)


@command("arkline release --collection demo", "ids", *_SELECT_JOBS, "version", *_ACT, ids=_IDS)
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
    result = _on_collection(options, collection, "release", "?keep_held=true" if keep_held else "")
    released = result.released
    if options.json:
        screen.emit(result)
        raise typer.Exit(exit_codes.of_outcome(released) if released else 0)
    if options.dry_run:
        held = len(released.done) if released else 0
        with_it = humanize.counted(held, "held job or batch", "held jobs and batches")
        screen.say(f"collection {collection} would be released, and {with_it} with it")
        return
    views.held(result)
    if released is not None:
        acting.show(released, as_json=False, single=False)


@command(
    "arkline resume --batch bid0000000001 --state failed --dry-run",
    "ids",
    *_SELECT_JOBS_BY_STATE,
    "cause",
    "version",
    *_ACT,
    ids=_IDS,
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
    overrule: Annotated[
        list[str] | None,
        typer.Option(
            "--overrule",
            metavar="FINDING",
            help="Store the files although a check stopped the jobs for this finding: its digest in the "
            "job's message, or CHECK:CODE. Repeat it for each finding; with --reason.",
        ),
    ] = None,
) -> None:
    """Resume failed jobs at the step that failed; of a batch, all of them.

    Files that were downloaded completely are not downloaded again. A job that lost its reservation of working
    storage takes a new one first. With --overrule, only the jobs of a batch that the finding stopped are
    resumed.
    """
    if overrule and not options.reason:
        raise UsageRefused(f"{verbs.OVERRULE_NEEDS_REASON}: add --reason WHY")
    _act(options, Event.RESUME, how=verbs.Resumption(to=step, findings=tuple(overrule or ())))


@command(
    "arkline approve jid0000000001 --reason 'the rights are cleared'",
    "jids",
    *_SELECT_JOBS,
    "version",
    *_ACT,
    ids=_IDS,
)
def approve(options: SharedOptions) -> None:
    """Approve jobs in review: they continue and are stored.

    Jobs wait for a review if their collection's profile says so (review: true).
    """
    _act(options, Event.APPROVE)


@command(
    "arkline reject jid0000000001 --reason 'the scans are not legible'",
    "jids",
    *_SELECT_JOBS,
    "version",
    *_ACT,
    ids=_IDS,
)
def reject(options: SharedOptions) -> None:
    """Reject jobs in review: they fail, and the depositor learns why.

    The depositor's report has the reason. A rejected job that is resumed waits for a review again.
    """
    _act(options, Event.REJECT)


@command(
    "arkline fail jid0000000001 --reason 'the source was withdrawn'",
    "jids",
    *_SELECT_JOBS_BY_STATE,
    "version",
    *_ACT,
    ids=_IDS,
)
def fail(options: SharedOptions) -> None:
    """Stop jobs that have not ended.

    Their locks and reserved space are freed. The batch's report lists them as failed; what is stored and
    recorded already is completed without waiting for its receiver.
    """
    _act(options, Event.FAIL)


@command(
    "arkline delete --state failed --older-than 30d --reason 'never fixed'",
    "ids",
    *_SELECT_JOBS_BY_STATE,
    "cause",
    "version",
    "yes",
    *_ACT,
    ids=_IDS,
)
def delete(options: SharedOptions) -> None:
    """Delete failed or held jobs and batches.

    The archive keeps who deleted them, when and why.
    """
    _act(options, Event.DELETE, _deletion)


def _deletion(expected: Outcome) -> str:
    names = [one.id for one in expected.done]
    what = names[0] if len(names) == 1 else humanize.counted(len(names), "job or batch", "jobs or batches")
    return f"Delete {what}? Reports to the depositor will list them as deleted, with your reason."


@command("arkline cancel bid0000000001 --reason 'submitted by mistake'", "yes", *_ACT, ids=_IDS)
def cancel(options: SharedOptions, bid: Bid) -> None:
    """Stop a batch.

    Its split or its report ends. Jobs that have not ended fail, or complete if they are recorded; held jobs
    are deleted, and the batch is reported.
    """

    def question(expected: Outcome) -> str:
        jobs = sum(result.id != bid for result in expected.done)
        return f"Stop {humanize.counted(jobs, 'job')} of {bid}?" if jobs else f"Stop {bid}?"

    with api.site(options.by) as site:
        outcome = _decided(options, partial(_raise, site, options, CANCEL, bid), question)
    acting.show(outcome, as_json=options.json, single=False)


@command("arkline repair jid0000000001 --reason 'disk error on zk2'", "reason", "by", "json", ids=_IDS)
def repair(
    options: SharedOptions,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            parser=read_id,
            autocompletion=completion.ids,
            help="Jobs or batches that cannot be read.",
        ),
    ],
) -> None:
    """Replace znodes of a job or batch that cannot be read.

    A job that has not ended fails, and its place, lock and reserved space are freed. The history keeps the
    damaged bytes. Restoring the znode from a backup loses less, if there is one.
    """
    single = len(names) == 1
    with api.site(options.by) as site:
        if single:
            outcome = _raise(site, options, REPAIR, names[0], dry_run=False)
        else:
            outcome = _on_each(site, options, REPAIR, names, dry_run=False)
    acting.show(outcome, as_json=options.json, single=single)


@command("arkline update-report bid0000000001", "version", *_ACT, ids=_IDS)
def update_report(options: SharedOptions, bid: Bid) -> None:
    """Send the depositor the changes since the last report.

    No mail is sent if nothing changed.
    """
    with api.site(options.by) as site:
        outcome = _raise(site, options, Event.UPDATE_REPORT, bid, dry_run=options.dry_run)
    acting.show(outcome, as_json=options.json, single=True)
