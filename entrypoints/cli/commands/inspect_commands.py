"""Commands that only read: status, jobs, collection, objects, timeline, why, open."""

from __future__ import annotations

import os
import webbrowser
from typing import Annotated
from urllib.parse import quote

import typer

import operations.collection_report
import operations.explanation
from entrypoints.cli import api, completion, context, exit_codes, reach, selection, watching
from entrypoints.cli.options import Json, SharedOptions, Watch, command, read_id, read_jid
from entrypoints.render import check_runs, collection_figures, explanation, fleet_status, screen, views
from operations.fleet import health
from operations.jobs import batch_view, job_view
from operations.objects import search
from pipeline.checks import CheckVerdict
from pipeline.errors import UsageRefused


@command("arkline status bid0000000001", ids="jid bid")
def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="BID|JID",
            parser=read_id,
            autocompletion=completion.ids,
            help="A batch or a job; default: the whole fleet.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show a batch, a job, or the health of the whole fleet.

    Exit 1 if the batch or job failed, or if no job can move.
    """
    with api.site() as site:
        if name is None:
            whole = site.get("/v1/queue", health.Overview)
            screen.emit(whole) if json else fleet_status.show(whole)
            raise typer.Exit(exit_codes.FAILED if whole.health.status is health.Health.STOPPED else 0)
        if name.startswith("bid"):
            batch = site.get(f"/v1/batches/{name}", batch_view.BatchView)
            screen.emit(batch) if json else views.batch(batch)
            raise typer.Exit(exit_codes.of_state(batch.status))
        job = site.get(f"/v1/jobs/{name}", job_view.JobView)
        progress = site.progress(name)
        if json:
            screen.emit({**job.model_dump(mode="json"), "progress": progress})
        else:
            views.job(job, progress)
            check_runs.runs(job.checks or ())
        raise typer.Exit(exit_codes.of_state(job.state))


@command(
    "arkline jobs --state failed --older-than 2h",
    "profile",
    "batch",
    "state",
    "cause",
    "older_than",
    "json",
    ids="jobs.jid",
)
def jobs(
    options: SharedOptions,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Jobs shown at most.")] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after this job: `next` of the page before."),
    ] = None,
    watch: Watch = False,
) -> None:
    """List jobs.

    Jobs of a batch come in their order, active jobs of a state in the queue's order, others newest first.
    """
    with api.site() as site:
        watching.show(
            site,
            lambda site: selection.jobs(site, options, limit, after),
            views.job_list,
            watch=watch,
            as_json=options.json,
            # without unknown fields of a job: `selection.jobs` leaves them unset
            document=lambda page: page.model_dump(mode="json", exclude_unset=True),
        )


@command("arkline collection demo", ids="collection")
def collection(
    name: Annotated[
        str, typer.Argument(metavar="NAME", autocompletion=completion.profiles, help="A collection.")
    ],
    json: Json = False,
) -> None:
    """Show what a collection stores, how it grows and what failed.

    Also its quota and when that is used up at the rate of the last 90 days, the last deposits, what is due
    for a fixity check, and what its profile asks of a deposit.
    """
    path = f"/v1/collections/{api.quoted(name)}/report"
    with api.site() as site:
        report = site.get(path, operations.collection_report.CollectionReport)
    screen.emit(report) if json else collection_figures.show(report)


@command("arkline objects müller img_0", ids="objects.ark")
def objects(  # noqa: PLR0913 - the conditions of a search
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="Words, or beginnings of words; all have to match."),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="CODE",
            help="What a check found: a virus, a format such as fmt/40, an obstacle.",
        ),
    ] = None,
    verdict: Annotated[
        CheckVerdict | None,
        typer.Option("--verdict", help="fine, found, or unchecked: also what no check has read."),
    ] = None,
    check: Annotated[str | None, typer.Option("--check", metavar="NAME", help="Only by this check.")] = None,
    outdated: Annotated[
        bool,
        typer.Option(
            "--outdated", help="Only objects last checked by an older version of a check than its newest."
        ),
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="Objects shown at most.")] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after this: `next` of the page before."),
    ] = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Find objects by words, and by what checks found in them.

    Words are looked for in titles, creators, dates, ARKs, local ids, names and digests of files, collections
    and deposits. The object with this ARK or local id comes first, then titles, then all others, the newest
    first. Of each check the last run counts. Without words and options, all objects are listed.
    """
    text = " ".join(query or ())
    conditions = {
        "q": text or None,
        "code": code,
        "verdict": verdict and verdict.value,
        "check": check,
        "outdated": outdated or None,
        "limit": limit,
        "cursor": after,
    }
    with api.site() as site:
        watching.show(
            site,
            lambda site: site.get("/v1/objects", search.ObjectList, **conditions),
            lambda page: check_runs.object_list(page, text),
            watch=watch,
            as_json=json,
        )


@command("arkline timeline jid0000000001", ids="jid")
def timeline(
    jid: Annotated[
        str,
        typer.Argument(
            metavar="JID",
            parser=read_jid,
            autocompletion=completion.jids,
            help="A job, such as jid0000000001.",
        ),
    ],
    json: Json = False,
) -> None:
    """Show every step of a job, and how long it took."""
    with api.site() as site:
        history = site.get(f"/v1/jobs/{jid}/timeline", job_view.Timeline)
    screen.emit(history) if json else views.timeline(history)


@command("arkline why jid0000000001", ids="id")
def why(
    name: Annotated[
        str,
        typer.Argument(
            metavar="BID|JID", parser=read_id, autocompletion=completion.ids, help="A batch or a job."
        ),
    ],
    json: Json = False,
) -> None:
    """Explain what a job or batch waits for.

    Prints one paragraph with the state, its start and the cause of the wait, then the commands that help.
    """
    with api.site() as site:
        explained = site.get(f"{api.path_of(name)}/why", operations.explanation.Explanation)
    screen.emit(explanation.document(explained)) if json else screen.say(explanation.text(explained))


@command("arkline open bid0000000001")
def open(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            autocompletion=completion.ids,
            help="A batch, a job, an ARK, a local id, or words of an object.",
        ),
    ],
    json: Json = False,
) -> None:
    """Open the page of a deposit, a job or an object in the browser.

    Prints its address, so that it can be opened elsewhere if this machine has no browser. With --json
    it opens nothing.
    """
    site = os.environ.get(reach.URL)
    if not site:
        login = api.client()
        site = login.url if login else context.settings().public_url
    if not site:
        raise UsageRefused(
            "the address of the pages is not known: set ARKLINE_PUBLIC_URL, or run `arkline login URL`"
        )
    address = f"{site.rstrip('/')}/find?q={quote(name)}"
    if json:
        screen.emit({"url": address})
        return
    screen.say(address)
    webbrowser.open(address)
