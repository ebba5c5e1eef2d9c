"""Commands that only read: status, jobs, timeline, why, audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from entrypoints.cli import completion, counting, exit_codes, sites
from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Json, SharedOptions, command, read_id, read_jid
from entrypoints.cli.render import audit as drawn_audit
from entrypoints.cli.render import overview as drawn_overview
from entrypoints.cli.render import views as drawn
from entrypoints.cli.render import why as drawn_why
from operations import audit as auditing
from operations import health
from zkstate import audit as consistency

if TYPE_CHECKING:
    from entrypoints.cli.remote.client import Client


@command("arkline status bid0000000001")
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
    with sites.site() as site:
        if name is None:
            opened.quiet_logs()
            whole = site.overview()
            screen.emit(whole) if json else drawn_overview.show(whole)
            raise typer.Exit(exit_codes.FAILED if whole.health.status is health.Health.STOPPED else 0)
        if name.startswith("bid"):
            batch = site.batch(name)
            screen.emit(batch) if json else drawn.batch(batch)
            raise typer.Exit(exit_codes.of_state(batch.status))
        job = site.job(name)
        progress = site.progress(job)
        if json:
            screen.emit({**job.model_dump(mode="json"), "progress": progress})
        else:
            drawn.job(job, progress)
        raise typer.Exit(exit_codes.of_state(job.state))


@command(
    "arkline jobs --state failed --older-than 2h", "profile", "batch", "state", "cause", "older_than", "json"
)
def jobs(
    options: SharedOptions,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Jobs shown at most.")] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after this job: `next` of the page before."),
    ] = None,
) -> None:
    """List jobs.

    Jobs of a batch come in their order, active jobs of a state in the queue's order, others newest first.
    """
    with sites.site() as site:
        page = site.jobs(common.filter_of(options), limit, after)
    screen.emit(page) if options.json else drawn.job_list(page)


@command("arkline timeline jid0000000001")
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
    with sites.site() as site:
        history = site.timeline(jid)
    screen.emit(history) if json else drawn.timeline(history)


@command("arkline why jid0000000001")
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

    One paragraph says where it is, since when, and what it waits for; then come the commands that help.
    """
    opened.quiet_logs()
    with sites.site() as site:
        facts = site.why(name)
    screen.emit(drawn_why.document(facts)) if json else screen.say(drawn_why.text(facts))


@command("arkline audit --json")
def audit(
    record: Annotated[
        bool, typer.Option("--record", help="Check the record in ZooKeeper alone; no store is opened.")
    ] = False,
    content: Annotated[
        bool, typer.Option("--content", help="Also read every byte of the versions of completed jobs.")
    ] = False,
    json: Json = False,
) -> None:
    """Check that the record agrees with itself, storage and inventory.

    Every node is checked twice, so a move in progress is not a finding. Of every completed job the version
    must be in storage and inventory, with the same digests. Exit 4 if storage lacks what was stored, 1 if
    there are other findings, 3 if storage or inventory cannot be reached.
    """
    beside = "`arkline audit` with --record or --content" if record or content else ""
    if (remote := sites.client(beside)) is not None:
        _audit_over_api(remote, as_json=json)
    with (
        opened.session() as (session, settings),
        screen.interruptible() as interrupted,
        counting.counter("completed jobs") as count,
    ):
        view = (
            auditing.AuditView(findings=consistency.audit(session))
            if record
            else auditing.audit(session, settings, content=content, on_progress=count, stopped=interrupted)
        )
    screen.emit(view) if json else drawn_audit.audit(view)
    raise typer.Exit(exit_codes.of_audit(view))


def _audit_over_api(remote: Client, *, as_json: bool) -> NoReturn:
    from entrypoints.cli.remote.site import RemoteSite

    view = RemoteSite(remote).audit()
    screen.emit(view) if as_json else drawn_audit.audit(view)
    raise typer.Exit(exit_codes.of_audit(view))
