"""Commands for the whole fleet: pause, unpause, history, drain, space, cleanup, report, callbacks."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

import operations.fleet.fleet
import operations.fleet.plan
from entrypoints.cli import api, completion, exit_codes, watching
from entrypoints.cli.options import ID, Bid, Json, SharedOptions, Watch, command, read_duration, read_jid
from entrypoints.render import fleet_status, screen, views
from entrypoints.render.screen import Column
from operations.fleet import working_storage
from operations.verbs import callbacks, holds
from pipeline import humanize
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.notify import batch_report

if TYPE_CHECKING:
    from operations.verbs.callbacks import CallbackAnswer


@command("arkline report bid0000000001", ids="bid")
def report(
    bid: Bid,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print a table with the ARK of each object, for spreadsheets.")
    ] = False,
    sent: Annotated[
        bool, typer.Option("--sent", help="Print the reports of an archived batch as they were mailed.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a batch's current report.

    For a failed job the report says why it failed and what to do; of an archived batch it says how each job
    ended, and whether staff deleted the job.
    """
    if csv + sent + json > 1:
        raise typer.BadParameter("give one of --csv, --sent and --json", param_hint="--csv")
    with api.site() as site:
        path = f"/v1/batches/{bid}/report"
        if json:
            screen.emit(site.get(path, batch_report.BatchReport))
            return
        text = site.request(
            "GET", path, query={"form": "csv" if csv else "sent" if sent else "text"}
        ).decode()
    typer.echo(text, nl=False)


@command("arkline pause --reason 'inventory maintenance'", "reason", "by", "json")
def pause(options: SharedOptions) -> None:
    """Stop starting new jobs.

    Running jobs continue, and submissions are still accepted.
    """
    with api.site(options.by) as site:
        result = site.post("/v1/queue/pause", holds.HoldResult, {"reason": options.reason})
    screen.emit(result) if options.json else views.held(result)


@command("arkline unpause", "reason", "by", "json")
def unpause(options: SharedOptions) -> None:
    """Start new jobs again."""
    with api.site(options.by) as site:
        result = site.post("/v1/queue/unpause", holds.HoldResult, {"reason": options.reason})
    screen.emit(result) if options.json else views.held(result)


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
    with api.site() as site:
        if subject is not None and ID["bid"].fullmatch(subject):
            batch = site.get(f"/v1/batches/{subject}/history", holds.BatchHistory)
            screen.emit(batch) if json else views.batch_history(batch)
            return
        path = "/v1/actions" if subject is None else f"/v1/collections/{api.quoted(subject)}/actions"
        view = site.get(path, holds.ActionHistory)
    screen.emit(view) if json else views.action_history(view)


WORKER = re.compile(r"(?!\.\.?$)[^\s/?#%]+")
"""The names of workers: a name is one segment of the path of a request."""


@command("arkline drain worker1@host", "reason", "by", "json", ids="worker")
def drain(
    options: SharedOptions,
    worker: Annotated[
        str | None,
        typer.Argument(metavar="WORKER", help="A worker, as worker1@host; lists the workers if left out."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let the worker take jobs again.")] = False,
    until_stop: Annotated[
        bool,
        typer.Option("--until-stop", help="End the drain when the worker stops, if it does not come back."),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=read_duration,
            help="Wait until the worker has no task, at most so long, as 25m.",
        ),
    ] = None,
) -> None:
    """Stop a worker from taking new jobs.

    It finishes the jobs it has, and can then be stopped. Restarted, it stays drained until --undo. The exit
    code is 1 if the worker still takes jobs, or does not answer, after 15 seconds, and with --wait if it
    still has a task.
    """
    if worker is not None and not WORKER.fullmatch(worker):
        raise UsageRefused(f"'{worker}' is no name of a worker: `arkline drain` lists the workers")
    with api.site(options.by) as site:
        if worker is None:
            fleet = site.get("/v1/workers", operations.fleet.fleet.Workers)
            screen.emit(fleet.taking) if options.json else fleet_status.workers(fleet)
            return
        how = "undrain" if undo else "drain?until_stop=true" if until_stop else "drain"
        path = f"/v1/workers/{worker}/{how}"
        done = site.post(path, operations.fleet.fleet.Drained, {"reason": options.reason})
        at_work = ""
        if wait is not None and done.followed and not undo:
            at_work = _await_idle(site, worker, wait)
    screen.emit(done) if options.json else fleet_status.drained(done)
    if at_work:
        screen.note(at_work, "")
    raise typer.Exit(0 if undo or (done.followed and not at_work) else exit_codes.FAILED)


IDLE_INTERVAL = 1.0
"""Seconds between two questions whether a worker still has a task."""


def _await_idle(site: api.Client, worker: str, seconds: float) -> str:
    """Wait until the worker says that it has no task; why it may have one after so many seconds, or nothing.

    The wait survives a site that does not answer for a while.
    """
    deadline, note = time.monotonic() + seconds, watching.noting()
    while True:
        late = time.monotonic() > deadline
        try:
            known = site.get("/v1/workers", operations.fleet.fleet.Workers).workers
        except ServiceUnreachable as error:
            if late:
                raise
            note(str(error))
        else:
            note("")
            busy = [one.busy > 0 or not one.says_busy for one in known if one.name == worker]
            if busy == [False]:
                return ""
            if late:
                return f"{worker} {'still has a task' if busy else 'no longer answers'}."
        time.sleep(IDLE_INTERVAL)


@command("arkline fleet plan --within 6h --jobs 20000")
def fleet_plan(
    within: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=read_duration, help="When all jobs should have ended, as 6h."
        ),
    ],
    jobs: Annotated[int, typer.Option(min=0, help="Further jobs that are expected.")] = 0,
    json: Json = False,
) -> None:
    """Say how many workers the backlog and a deadline need.

    The rate is what was stored of the batches in progress within the last hour, and more workers are taken to
    do proportionally more. While fewer than 20 objects were measured, the number is not known, and the exit
    code is 1, unless the backlog is empty.
    """
    with api.site() as site:
        plan = site.get("/v1/fleet/plan", operations.fleet.plan.FleetPlan, within=within, expected=jobs)
    screen.emit(plan) if json else fleet_status.plan(plan)
    raise typer.Exit(0 if plan.unknown is None else exit_codes.FAILED)


@command("arkline space --json", ids="reservations.jid")
def space(json: Json = False) -> None:
    """Show working storage and the jobs that reserve it."""
    with api.site() as site:
        view = site.get("/v1/space", working_storage.SpaceView)
    screen.emit(view) if json else fleet_status.space(view)


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
    body = {"reason": options.reason, "older_than": older_than, "dry_run": options.dry_run}
    with api.site(options.by) as site:
        result = site.post("/v1/space/clean-up", working_storage.CleanUp, body)
    screen.emit(result) if options.json else fleet_status.cleaned(result)


PAGE = 500


@command("arkline callback list", ids="callbacks.jid")
def callback_list(watch: Watch = False, json: Json = False) -> None:
    """List the callbacks of failed jobs that were not delivered yet."""
    with api.site() as site:
        watching.show(
            site,
            lambda site: site.get("/v1/callbacks", callbacks.OwedPage, limit=PAGE),
            _owed,
            watch=watch,
            as_json=json,
        )


def _owed(page: callbacks.OwedPage) -> None:
    screen.table(
        page.callbacks,
        Column("job", lambda row: row.jid),
        Column("collection", lambda row: row.collection),
        Column("owed", lambda row: humanize.ago(row.since)),
        Column("tries", lambda row: str(row.tries)),
        Column("next try", lambda row: humanize.in_time(row.next_try)),
        Column("last try", lambda row: row.message, long=True),
    )
    if page.next is not None:
        in_all = f"These are {len(page.callbacks):,} of {page.owed:,} callbacks."
        screen.note(in_all if page.owed else "There are more than these.", "")


@command(
    "arkline callback deliver jid0000000001 --reason 'their server was replaced'", "reason", "by", "json"
)
def callback_deliver(
    options: SharedOptions,
    jid: Annotated[
        str,
        typer.Argument(metavar="JID", parser=read_jid, autocompletion=completion.ids, help="An ended job."),
    ],
) -> None:
    """Deliver the callback of a job now, also if it was delivered or given up.

    One request is sent, over the API from the site. Exit 1 if the receiver did not take it.
    """
    with api.site(options.by) as site:
        body = {"reason": options.reason}
        answer = site.post(f"/v1/callbacks/{jid}/deliver", callbacks.CallbackAnswer, body)
    _show(answer, as_json=options.json)


@command("arkline callback test demo", "by", "json")
def callback_test(
    options: SharedOptions,
    name: Annotated[
        str, typer.Argument(metavar="PROFILE", autocompletion=completion.profiles, help="A profile.")
    ],
) -> None:
    """Send a signed test callback to a profile's receiver.

    One request is sent, over the API from the site; its jobStatus is TEST. Exit 1 if the receiver did not
    take it.
    """
    with api.site(options.by) as site:
        path = f"/v1/collections/{api.quoted(name)}/test-callback"
        answer = site.post(path, callbacks.CallbackAnswer, {})
    _show(answer, as_json=options.json)


def _show(answer: CallbackAnswer, *, as_json: bool) -> None:
    if as_json:
        screen.emit(answer)
    else:
        what = f"the callback of {answer.jid}" if answer.jid else "a test callback"
        signed = "signed" if answer.signed else "not signed: there is no secret for this profile"
        took = "took" if answer.delivered else "did not take"
        screen.say(f"{answer.receiver} {took} {what} ({signed}): {answer.message}")
    raise typer.Exit(int(not answer.delivered))
