"""Commands on jobs and batches: hold, release, resume, fail, delete, cancel, update-report."""

from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import completion, reach, sites
from entrypoints.cli import console as screen
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Bid, SharedOptions, command
from entrypoints.cli.remote import verbs as remote_verbs
from entrypoints.cli.render import actions
from entrypoints.cli.render import humanize as words
from operations import bulk, holds, job_list
from pipeline.errors import UsageRefused
from pipeline.profiles import profile as profiles
from pipeline.states import JOB, Event, JobState

if TYPE_CHECKING:
    from entrypoints.cli.remote.client import Client
    from operations.holds import HoldResult

_SELECT = ("ids", "profile", "batch", "older_than")
_SELECT_BY_STATE = ("ids", "profile", "batch", "state", "older_than")
_ACT = ("reason", "by", "dry_run", "json")
_REPEATABLE = tuple(dict.fromkeys(row.target for row in JOB.rows(JobState.FAILED, Event.RESUME) if row.named))


def _act(options: SharedOptions, event: Event, question: str = "", to: JobState | None = None) -> None:
    """Raise the event on the named or selected jobs and batches, if the answer to `question` is yes.

    `to`: the state in which jobs are to be resumed.
    """
    named = common.are_named(options)
    if (remote := sites.client()) is not None:
        _act_over_api(remote, options, event, question, to)
        return
    with common.operator(options) as operator:
        names = (
            options.ids
            if named and options.ids
            else bulk.select(operator.session, common.filter_of(options), event)
        )
        single = named and len(names) == 1
        whole_batch = _resumes_a_batch(event, names)
        if options.version is not None and not single:
            raise UsageRefused("--if-version is for one job or batch: name it")

        def act(dry_run: bool) -> bulk.Outcome:
            with common.long_run(operator) as running:
                if whole_batch:
                    return bulk.resume_batch(
                        running, names[0], version=options.version, to=to, dry_run=dry_run
                    )
                if single:
                    return bulk.act_on_one(
                        running, event, names[0], version=options.version, to=to, dry_run=dry_run
                    )
                return bulk.act_on_many(running, event, names, to=to, dry_run=dry_run)

        if question and not options.dry_run and not options.yes and (planned := act(True).done):
            common.confirm(question.format(_count_or_name([result.id for result in planned])), options.yes)
        outcome = act(options.dry_run)
    common.show(outcome, as_json=options.json, single=single and not whole_batch)


def _act_over_api(
    remote: "Client", options: SharedOptions, event: Event, question: str, to: JobState | None
) -> None:
    names = options.ids or []
    single = len(names) == 1
    if options.version is not None and not single:
        raise UsageRefused("--if-version is for one job or batch: name it")
    if single and not options.dry_run:
        if question:
            common.confirm(question.format(names[0]), options.yes)
        outcome = remote_verbs.act_on_one(
            remote, event, names[0], options.reason, version=options.version, to=to
        )
    elif single and names[0].startswith("bid") and to is None:
        outcome = remote_verbs.dry_run_of_batch(remote, event, names[0], options.version)
    else:
        if to is not None:
            raise UsageRefused("over the API, --from is for one job: name it")
        planned = remote_verbs.plan(remote, event, names, common.filter_of(options))
        outcome = remote_verbs.as_outcome(planned)
        if not options.dry_run:
            if question and planned.expected:
                common.confirm(
                    question.format(_count_or_name([result.id for result in planned.expected])), options.yes
                )
            outcome = remote_verbs.carry_out(remote, planned, options.reason)
    common.show(outcome, as_json=options.json, single=single and not _resumes_a_batch(event, names))


def _resumes_a_batch(event: Event, names: list[str]) -> bool:
    """Whether one batch is named, whose failed jobs are resumed: the result is a list of jobs."""
    return event is Event.RESUME and len(names) == 1 and names[0].startswith("bid")


def _count_or_name(names: list[str]) -> str:
    return names[0] if len(names) == 1 else words.counted(len(names), "job or batch", "jobs or batches")


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
    if (remote := sites.client(reach.DRY_RUN if options.dry_run else "")) is not None:
        held = remote_verbs.hold(remote, f"/v1/collections/{collection}/hold", options.reason)
        screen.emit(held) if options.json else actions.held(held)
        return
    with common.operator(options) as operator:
        collections = profiles.Profiles(operator.settings.profiles)
        collections.get(collection)
        if options.dry_run:
            screen.say(f"collection {collection} would be put on hold")
            return
        result = holds.hold_collection(operator, collection)
    screen.emit(result) if options.json else actions.held(result)


def _check_alone(options: SharedOptions) -> None:
    if options.ids or common.filter_of(options) != job_list.JobFilter() or options.version is not None:
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
    beside = "--keep-held" if keep_held else reach.DRY_RUN if options.dry_run else ""
    if (remote := sites.client(beside)) is not None:
        ended = remote_verbs.hold(remote, f"/v1/collections/{collection}/release", options.reason)
        _show_released(ended, as_json=options.json)
        return
    with common.operator(options) as operator:
        if options.dry_run:
            names = [] if keep_held else holds.held_in(operator.session, collection)
            held = words.counted(len(names), "held job or batch", "held jobs and batches")
            screen.say(f"collection {collection} would be released, and {held} with it")
            return
        with common.long_run(operator) as running:
            result = holds.release_collection(running, collection, keep_held=keep_held)
    _show_released(result, as_json=options.json)


def _show_released(result: "HoldResult", *, as_json: bool) -> None:
    if as_json:
        screen.emit(result)
        return
    actions.held(result)
    if result.released is not None:
        common.show(result.released, as_json=False, single=False)


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
    if (remote := sites.client()) is not None:
        if options.dry_run:
            cancelled = remote_verbs.dry_run_of_batch(remote, "cancel", bid)
        else:
            common.confirm(f"Stop {bid}?", options.yes)
            cancelled = remote_verbs.cancel(remote, bid, options.reason)
        common.show(cancelled, as_json=options.json, single=False)
        return
    with common.operator(options) as operator:
        if not options.dry_run:
            plan = bulk.cancel(operator, bid, dry_run=True)
            jobs = sum(result.id != bid for result in plan.done)
            named = f"{words.counted(jobs, 'job')} of {bid}" if jobs else bid
            common.confirm(f"Stop {named}?", options.yes)
        with common.long_run(operator) as running:
            outcome = bulk.cancel(running, bid, dry_run=options.dry_run)
    common.show(outcome, as_json=options.json, single=False)


@command("arkline update-report bid0000000001", "version", *_ACT)
def update_report(options: SharedOptions, bid: Bid) -> None:
    """Send the depositor the changes since the last report.

    No mail is sent if nothing changed.
    """
    if (remote := sites.client()) is not None:
        sent = (
            remote_verbs.dry_run_of_batch(remote, Event.UPDATE_REPORT, bid, options.version)
            if options.dry_run
            else remote_verbs.act_on_one(
                remote, Event.UPDATE_REPORT, bid, options.reason, version=options.version
            )
        )
        common.show(sent, as_json=options.json, single=True)
        return
    with common.operator(options) as operator:
        outcome = bulk.act_on_one(
            operator, Event.UPDATE_REPORT, bid, version=options.version, dry_run=options.dry_run
        )
    common.show(outcome, as_json=options.json, single=True)
