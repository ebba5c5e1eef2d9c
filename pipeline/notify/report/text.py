"""A report as plain text that a depositor can act on, and as JSON."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from pipeline.notify.report.compose import BatchReport, ReportedJob

LISTED = 200
"""Maximum number of jobs per section of the text; the JSON has all of them."""

WIDTH = 78


def as_json(report: BatchReport) -> str:
    return report.model_dump_json(indent=1)


def as_text(report: BatchReport) -> str:
    """Failures come first, because they need action."""
    lines = [*_wrapped(headline(report)), "", *_facts(report)]
    if report.message:
        lines += ["", *_labelled("What happened", report.message), *_labelled("What to do", report.advice)]
    lines += _section("Failed", report.failed, _failure)
    lines += _section("In progress", report.unfinished, _short)
    lines += _section("Completed", report.completed, _short)
    lines += _section("Deleted by our staff", report.deleted, _removal)
    return "\n".join(lines) + "\n"


def headline(report: BatchReport) -> str:
    """One sentence with the state of the batch."""
    counts = report.counts
    if not counts.total:
        return f"{report.bid}: no objects could be created from this submission."
    objects = "object" if counts.total == 1 else "objects"
    parts = [f"{counts.completed:,} of {counts.total:,} {objects} completed"]
    for number, what in (
        (counts.failed, "failed"),
        (counts.unfinished, "in progress"),
        (counts.deleted, "deleted"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    changed = f" Changes since {_time(report.since)}:" if report.since else ""
    return f"{report.bid}: {', '.join(parts)}.{changed}"


def facts(report: BatchReport) -> tuple[tuple[str, str], ...]:
    """The facts of the submission by name; '' where there is none."""
    return (
        ("Collection", report.profile_name),
        ("Submitted", f"{_time(report.submitted_at)}{' by ' if report.submitter else ''}{report.submitter}"),
        ("Payload", f"{report.payload_name} ({report.payload_type.label})".strip()),
        ("Note", report.note),
        ("Reported", _time(report.reported_at)),
    )


def _facts(report: BatchReport) -> Iterator[str]:
    for name, value in facts(report):
        if value:
            yield from _labelled(name, value, indent="", width=12)


def _section(
    title: str, jobs: Sequence[ReportedJob], describe: Callable[[ReportedJob], Iterator[str]]
) -> Iterator[str]:
    if not jobs:
        return
    yield from ("", f"{title}: {len(jobs)}")
    for job in jobs[:LISTED]:
        yield from describe(job)
    if len(jobs) > LISTED:
        yield f"  and {len(jobs) - LISTED} more"


def _short(job: ReportedJob) -> Iterator[str]:
    yield from _wrapped("  ".join(_names(job)), indent="  ")


def _failure(job: ReportedJob) -> Iterator[str]:
    yield ""
    yield from _short(job)
    yield from _labelled("what happened", job.message or "no message was recorded", indent="      ")
    yield from _labelled("what to do", job.advice, indent="      ")


def _removal(job: ReportedJob) -> Iterator[str]:
    because = f": {job.message}" if job.message else ""
    yield from _wrapped("  ".join(_names(job)) + because, indent="  ")


def _names(job: ReportedJob) -> Iterator[str]:
    yield job.jid
    yield from filter(None, (job.name, job.ark))
    if job.local_id:
        yield f"(local id {'; '.join(job.local_id)})"


def _labelled(name: str, value: str, *, indent: str = "", width: int = 15) -> Iterator[str]:
    head = f"{indent}{name + ':':<{width}}"
    yield from _wrapped(value, indent=head, hanging=" " * len(head))


def _wrapped(text: str, *, indent: str = "", hanging: str | None = None) -> list[str]:
    """Lines without control characters: a file name must not move the cursor or end a line."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return textwrap.wrap(
        plain,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if hanging is None else hanging,
        # URLs and ARKs stay whole, so that they can be copied
        break_long_words=False,
        break_on_hyphens=False,
    )


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
