"""Renders batches, jobs, lists, timelines and operators' actions on a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from entrypoints.render import screen
from entrypoints.render.remedies import command
from entrypoints.render.screen import Column
from pipeline.errors import Action, Remedy
from pipeline.humanize import age, ago, brief, by_whom, counted, duration, left, listed, progress
from pipeline.states import Event, FailureKind
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from operations.jobs.batch_view import BatchView
    from operations.jobs.job_view import JobList, JobView, Step, Timeline
    from operations.verbs.holds import ActionHistory, BatchHistory, HoldResult
    from operations.visibility import Gone
    from pipeline.attempt import Progress


WHY_STALE = "ZooKeeper is away"
"""Why what a web process shows from memory is stale."""


def local(moment: datetime) -> str:
    """`2026-09-01 14:00:00`, in the reader's time zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def when(moment: datetime) -> str:
    """`2026-09-01 14:00:00 (2 hours ago)`, in the reader's time zone."""
    return f"{local(moment)} ({ago(moment)})"


def batch(view: BatchView) -> None:
    head = Text.assemble((view.bid, "bold"), "  ", screen.state(view.status))
    if view.percent is not None:
        remaining = "" if view.seconds_left is None else f", {left(view.seconds_left)}"
        head.append(f"  {view.percent:g} % of {counted(view.total or 0, 'job')}{remaining}")
    screen.say(head)
    screen.facts(
        (
            ("jobs", listed(view.jobs)),
            ("message", view.message),
            ("kind", _kind(view.kind)),
            ("since", when(view.since)),
            ("name", view.name),
            ("collection", view.profile),
            ("submitted", f"{when(view.submitted_at)}" + (f" by {view.submitter}" if view.submitter else "")),
            ("payload", f"{view.payload_url} ({view.payload_type.label})"),
            ("report", _report(view)),
            ("archived", _archived(view.archived)),
        )
    )
    if view.failed_jobs:
        screen.say("")
        screen.table(
            view.failed_jobs,
            Column("failed job", lambda job: job.jid),
            Column("kind", lambda job: screen.state(job.kind) if job.kind else ""),
            Column("file", lambda job: job.name, wide=True),
            Column("why", lambda job: job.message, long=True),
        )


OBJECTS = 20
"""Maximum number of objects shown when a batch ends; `arkline report` has all."""


def objects(view: BatchView) -> None:
    """Print the ARKs of a batch that has ended."""
    if not view.objects:
        return
    screen.say("")
    screen.table(
        view.objects[:OBJECTS],
        Column("object", lambda job: job.name),
        Column("ARK", lambda job: job.ark or ""),
        Column("state", lambda job: screen.state(job.state)),
        Column("title", lambda job: job.title, wide=True),
    )
    for job in view.objects[:OBJECTS]:
        if job.remark:
            screen.say(f"please check {job.name}: {job.remark}")
    if len(view.objects) > OBJECTS:
        more = len(view.objects) - OBJECTS
        screen.say(f"and {more:,} more: {command(Remedy(Action.SHOW_REPORT, view.bid))} --csv")


def _kind(kind: FailureKind | None) -> Text | None:
    return screen.state(kind).append(f": {kind.doc}", "default") if kind else None


def _report(view: BatchView) -> str:
    report = view.report
    if report is None:
        return ""
    completed, failed = len(report.successful_jobs), len(report.failed_jobs)
    return f"{when(report.last_modified)}: {completed:,} completed, {failed:,} failed"


def _archived(gone: Gone | None) -> str:
    if gone is None:
        return ""
    return f"{when(gone.at)} by {gone.by}" + (f": {gone.reason}" if gone.reason else "")


def job(view: JobView, live: Progress | None = None) -> None:
    screen.say(Text.assemble((view.jid, "bold"), "  ", screen.state(view.state), f"  {view.name}"))
    screen.facts(
        (
            ("message", view.message),
            ("kind", _kind(view.kind)),
            ("since", when(view.since)),
            ("download", progress(live) if live else ""),
            ("last success", view.last_successful_status or ""),
            ("batch", view.bid),
            ("collection", view.profile),
            ("object", view.ark or ""),
            ("local ids", "; ".join(view.local_id)),
            ("title", view.what),
            ("creator", view.who),
            ("date", view.when),
            ("payload", f"{view.payload_url} ({view.payload_type.label})"),
            ("priority", "" if view.priority is None else f"{view.priority:02d}"),
            ("space", in_units(view.space_needed) if view.space_needed else ""),
            ("reserved", in_units(view.space_promised) if view.space_promised else ""),
            ("resumed", counted(view.retry_count, "time") if view.retry_count else ""),
            ("folder", view.working_dir),
            ("you can", ", ".join(view.verbs)),
            ("archived", _archived(view.archived)),
        )
    )


def job_list(page: JobList) -> None:
    screen.table(
        page.jobs,
        Column("job", lambda row: row.jid),
        Column("state", lambda row: screen.state(row.state)),
        Column("for", lambda row: brief(age(row.since)), right=True),
        Column("batch", lambda row: row.bid, wide=True),
        Column("collection", lambda row: row.profile, wide=True),
        Column("pr", lambda row: f"{row.priority:02d}", wide=True),
        Column("file or failure", lambda row: _failure(row.kind, row.message) or row.name, long=True),
    )
    for damaged in page.unreadable:
        remedy = command(Remedy(Action.REPAIR, damaged.id))
        screen.note(f"{damaged.id} cannot be read: {damaged.problem}; {remedy} replaces it")
    if page.next is not None:
        total = "" if page.total is None else f" of {counted(page.total, 'job')}"
        screen.note(f"{len(page.jobs)}{total} shown; --after {page.next} shows the next page")


def _failure(kind: FailureKind | None, message: str) -> Text | None:
    return Text.assemble(screen.state(kind), f": {message}") if kind else None


def _description(step: Step) -> Text | str:
    text = step.message or (step.event.doc if step.event and step.event is not Event.SUCCEED else "")
    return _failure(step.kind, text) or text


def timeline(history: Timeline) -> None:
    screen.say(
        Text.assemble((history.jid, "bold"), "  ", screen.state(history.state), f"  batch {history.bid}")
    )
    rows = history.rows
    screen.table(
        rows,
        Column("at", lambda step: local(step.at)),
        Column("state", lambda step: screen.state(step.state)),
        Column("for", lambda step: "" if step.seconds is None else _lasted(step.seconds), right=True),
        Column("event", lambda step: step.named(first=step is rows[0]), wide=True),
        Column("by", lambda step: step.by, wide=True),
        Column("what", _description, long=True),
    )
    screen.say(f"{_lasted(history.seconds)} from the first entry to the last.")
    if history.archived:
        screen.say(f"Archived {_archived(history.archived)}.")


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def held(result: HoldResult) -> None:
    """Print a hold or a pause, or its end."""
    collection = result.collection
    subject = f"collection {collection}" if collection else "the queue"
    condition = "on hold" if collection else "paused"
    if result.hold is not None and result.changed:
        who = ": ".join(part for part in (f"by {result.hold.by}", result.hold.reason) if part)
        screen.say(f"{subject} is now {condition} ({who}).")
    elif result.hold is not None:
        hold = result.hold
        screen.note(f"{subject} is already {condition}{by_whom(hold.by, hold.reason, hold.at)}")
    elif result.changed:
        screen.say(f"{subject} is no longer {condition}.")
    else:
        screen.note(f"{subject} was not {condition}")


def batch_history(history: BatchHistory) -> None:
    moves = [
        (entry.at, entry.named(first=number == 0), entry.state, entry.by, entry.via or "", entry.message)
        for number, entry in enumerate(history.moves)
    ]
    renewals = [
        (renewal.since, "renew-profile", "", renewal.by, renewal.via or "", renewal.reason)
        for renewal in history.renewals
    ]
    screen.table(
        sorted(moves + renewals, key=lambda row: row[0]),
        Column("at (UTC)", lambda row: _moment(row[0])),
        Column("action", lambda row: row[1]),
        Column("state", lambda row: row[2]),
        Column("by", lambda row: row[3], wide=True),
        Column("via", lambda row: row[4], wide=True),
        Column("message", lambda row: row[5], long=True),
    )


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def action_history(actions: ActionHistory) -> None:
    subject = f"collection {actions.collection}" if actions.collection else "the queue"
    if not actions.entries:
        screen.note(f"no action is recorded for {subject}")
        return
    screen.table(
        actions.entries,
        Column("at (UTC)", lambda entry: _moment(entry.at)),
        Column("action", lambda entry: f"{entry.action} {entry.target}".rstrip()),
        Column("by", lambda entry: entry.by),
        Column("via", lambda entry: entry.via or "", wide=True),
        Column("reason", lambda entry: entry.reason, long=True),
    )
