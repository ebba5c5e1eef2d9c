"""Commands that look and change nothing: status, jobs, timeline, why, audit."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes
from entrypoints.cli.options import Batch, Id, Jid, Json, OlderThan, OptionalId, Profile, State
from entrypoints.cli.render import overview as drawn_overview
from entrypoints.cli.render import views as drawn
from entrypoints.cli.render import why as drawn_why
from operations.batch_view import batch_view
from operations.health import Health
from operations.job_list import JobFilter, list_jobs
from operations.job_view import job_view
from operations.job_view import timeline as timeline_
from operations.live import progress_of
from operations.overview import overview
from operations.why import why as why_
from zkstate.audit import audit as audit_


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: arkline status bid0000000001")(status)
    app.command(epilog="Example: arkline jobs --state failed --older-than 2h")(jobs)
    app.command(epilog="Example: arkline timeline jid0000000001")(timeline)
    app.command(epilog="Example: arkline why jid0000000001")(why)
    app.command(epilog="Example: arkline audit --json")(audit)


def status(context: typer.Context, name: OptionalId = None, json: Json = False) -> None:
    """Show a batch, a job, or the health of the whole fleet.

    Exit 1 if the batch or job failed, or if no job can move.
    """
    settings = opened.settings()
    with opened.session(settings) as session:
        if name is None:
            opened.quiet_logs(bool(context.obj))
            whole = overview(session, settings)
            screen.emit(whole) if json else drawn_overview.show(whole)
            raise typer.Exit(exit_codes.FAILED if whole.health.status is Health.STOPPED else 0)
        archive = opened.archive(settings)
        if name.startswith("bid"):
            batch = batch_view(session, name, archive)
            screen.emit(batch) if json else drawn.batch(batch)
            raise typer.Exit(exit_codes.of_state(batch.status))
        job = job_view(session, name, archive)
        progress = progress_of(settings, job.jid, job.state)
        if json:
            screen.emit({**job.model_dump(mode="json"), "progress": progress})
        else:
            drawn.job(job, progress)
        raise typer.Exit(exit_codes.of_state(job.state))


def jobs(  # noqa: PLR0913 - one argument for each option
    profile: Profile = None,
    batch: Batch = None,
    state: State = None,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Jobs shown at most.")] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after this job: `next` of the page before."),
    ] = None,
    json: Json = False,
) -> None:
    """List jobs.

    Jobs of a batch come in their order, jobs of a state in the queue's order, others newest first.
    """
    conditions = JobFilter(bid=batch, profile=profile, state=state, older_than=older_than)
    with opened.session(opened.settings()) as session:
        page = list_jobs(session, conditions, limit, after)
    screen.emit(page) if json else drawn.job_list(page)


def timeline(jid: Jid, json: Json = False) -> None:
    """Show every step of a job, and how long it took."""
    settings = opened.settings()
    with opened.session(settings) as session:
        history = timeline_(session, jid, opened.archive(settings))
    screen.emit(history) if json else drawn.timeline(history)


def why(context: typer.Context, name: Id, json: Json = False) -> None:
    """Explain what a job or batch waits for.

    One paragraph says where it is, since when, and what it waits for; then come the commands that help.
    """
    settings = opened.settings()
    with opened.session(settings) as session:
        opened.quiet_logs(bool(context.obj))
        facts = why_(session, settings, name, opened.archive(settings))
    screen.emit(drawn_why.document(facts)) if json else screen.say(drawn_why.text(facts))


def audit(json: Json = False) -> None:
    """Check that ZooKeeper's nodes agree.

    Exit 1 if there are findings. Every node is checked twice, so a move in progress is not a finding.
    """
    with opened.session(opened.settings()) as session:
        findings = audit_(session)
    if json:
        screen.emit({"findings": findings})
    elif findings:
        drawn.findings(findings)
    else:
        screen.say("Everything agrees.", "green")
    raise typer.Exit(int(bool(findings)))
