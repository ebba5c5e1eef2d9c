"""What commands show to people, drawn of what the operations return."""

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
    """`2026-09-01 14:00:00 (2 hours ago)`, in the reader's own time."""
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
            ("report", _told(view)),
            ("archived", _gone(view.archived)),
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


def _told(view: BatchView) -> str:
    told = view.report
    if told is None:
        return ""
    return (
        f"{when(told.last_modified)}: {len(told.successful_jobs)} completed, {len(told.failed_jobs)} failed"
    )


def _gone(gone: Gone | None) -> str:
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
            ("promised", in_units(view.space_promised) if view.space_promised else ""),
            ("resumed", counted(view.retry_count, "time") if view.retry_count else ""),
            ("folder", view.working_dir),
            ("you can", ", ".join(view.verbs)),
            ("archived", _gone(view.archived)),
        )
    )


def job_list(found: JobList) -> None:
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
                _said(row.name, row.kind, row.message),
            )
            for row in found.jobs
        ),
    )
    for damaged in found.unreadable:
        screen.note(f"{damaged.id} cannot be read: {damaged.problem}")
    if found.next is not None:
        total = "" if found.total is None else f" of {counted(found.total, 'job')}"
        screen.note(f"{len(found.jobs)}{total} shown; --after {found.next} shows the next page")


def _said(name: str, kind: FailureKind | None, message: str) -> Text | str:
    if kind is None:
        return name
    return Text.assemble(screen.state(kind), f": {message}")


def _happened(step: Step) -> str:
    return step.message or (step.event.doc if step.event and step.event is not Event.SUCCEED else "")


def timeline(found: Timeline) -> None:
    screen.say(Text.assemble((found.jid, "bold"), "  ", screen.state(found.state), f"  batch {found.bid}"))
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
                _said(_happened(step), step.kind, _happened(step)),
            )
            for step in found.steps
        ),
    )
    screen.say(f"{_lasted(found.seconds)} from the first entry to the last.")
    if found.archived:
        screen.say(f"Archived {_gone(found.archived)}.")


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def findings(found: tuple[Finding, ...]) -> None:
    screen.table(
        (Column("where", long=True), Column("what", long=True)),
        ((finding.path, finding.problem) for finding in found),
    )
    screen.note(f"{counted(len(found), 'finding')}; each was seen twice, so that none is a move in progress")
