"""Shows batches, jobs, lists, timelines and findings on a terminal."""

from datetime import datetime

from rich.text import Text

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import age, brief, counted, duration, listed
from entrypoints.cli.render.progress import progress
from operations.batch_view import BatchView, Gone
from operations.job_list import JobList
from operations.job_view import JobView, Step, Timeline
from pipeline.attempt import Progress
from pipeline.states import Event, FailureKind
from pipeline.working_storage.capacity import in_units
from zkstate.audit import Finding

LOCAL_FORM = "%Y-%m-%d %H:%M:%S"


def when(moment: datetime) -> str:
    """`2026-09-01 14:00:00 (2 hours ago)`, in the reader's time zone."""
    return f"{moment.astimezone():{LOCAL_FORM}} ({duration(age(moment))} ago)"


def batch(view: BatchView) -> None:
    head = Text.assemble((view.bid, "bold"), "  ", screen.state(view.status))
    if view.percent is not None:
        head.append(f"  {view.percent:g} % of {counted(view.total or 0, 'job')}")
    screen.say(head)
    screen.facts(
        (
            ("jobs", listed(view.jobs)),
            ("message", view.message),
            ("kind", _kind(view.kind)),
            ("since", when(view.since)),
            ("collection", view.profile),
            ("submitted", f"{when(view.submitted_at)}" + (f" by {view.submitter}" if view.submitter else "")),
            ("payload", f"{view.payload_url} ({view.payload_type.label})"),
            ("report", _report(view)),
            ("archived", _archived(view.archived)),
        )
    )
    if view.failed_jobs:
        screen.say("")
        columns = (Column("failed job"), Column("kind"), Column("file", wide=True), Column("why", long=True))
        screen.table(
            columns,
            ((job.jid, _kind(job.kind, brief=True) or "", job.name, job.message) for job in view.failed_jobs),
        )


def _kind(kind: FailureKind | None, *, brief: bool = False) -> Text | None:
    if kind is None:
        return None
    text = screen.state(kind)
    return text if brief else text.append(f": {kind.doc}", "default")


def _report(view: BatchView) -> str:
    report = view.report
    if report is None:
        return ""
    completed, failed = len(report.successful_jobs), len(report.failed_jobs)
    return f"{when(report.last_modified)}: {completed} completed, {failed} failed"


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
    columns = (
        Column("job"),
        Column("state"),
        Column("for", right=True),
        Column("batch", wide=True),
        Column("collection", wide=True),
        Column("pr", wide=True),
        Column("file or failure", long=True),
    )
    screen.table(
        columns,
        (
            (
                row.jid,
                screen.state(row.state),
                brief(age(row.since)),
                row.bid,
                row.profile,
                f"{row.priority:02d}",
                _name_or_failure(row.name, row.kind, row.message),
            )
            for row in page.jobs
        ),
    )
    for damaged in page.unreadable:
        screen.note(f"{damaged.id} cannot be read: {damaged.problem}")
    if page.next is not None:
        total = "" if page.total is None else f" of {counted(page.total, 'job')}"
        screen.note(f"{len(page.jobs)}{total} shown; --after {page.next} shows the next page")


def _name_or_failure(name: str, kind: FailureKind | None, message: str) -> Text | str:
    if kind is None:
        return name
    return Text.assemble(screen.state(kind), f": {message}")


def _description(step: Step) -> str:
    return step.message or (step.event.doc if step.event and step.event is not Event.SUCCEED else "")


def timeline(history: Timeline) -> None:
    screen.say(
        Text.assemble((history.jid, "bold"), "  ", screen.state(history.state), f"  batch {history.bid}")
    )
    columns = (
        Column("at"),
        Column("state"),
        Column("for", right=True),
        Column("by", wide=True),
        Column("what", long=True),
    )
    screen.table(
        columns,
        (
            (
                f"{step.at.astimezone():{LOCAL_FORM}}",
                screen.state(step.state),
                "" if step.seconds is None else _lasted(step.seconds),
                step.by,
                _name_or_failure(_description(step), step.kind, _description(step)),
            )
            for step in history.steps
        ),
    )
    screen.say(f"{_lasted(history.seconds)} from the first entry to the last.")
    if history.archived:
        screen.say(f"Archived {_archived(history.archived)}.")


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def findings(results: tuple[Finding, ...]) -> None:
    screen.table(
        (Column("where", long=True), Column("what", long=True)),
        ((finding.path, finding.problem) for finding in results),
    )
    screen.note(f"{counted(len(results), 'finding')}; checked twice, so a move in progress is not listed")
