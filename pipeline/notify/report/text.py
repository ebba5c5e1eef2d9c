"""A report as plain text that a depositor can act on, and as JSON."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from pipeline.notify.report.compose import BatchReport, ReportedJob

LISTED = 200
"""Jobs of one kind that the text names; more make a mail that nobody reads, and all are in the JSON."""

WIDTH = 78


def as_json(report: BatchReport) -> str:
    return report.model_dump_json(indent=1)


def as_text(report: BatchReport) -> str:
    """Failures first, because they are what somebody has to act on."""
    lines = [*_wrapped(headline(report)), "", *_facts(report)]
    if report.message:
        lines += ["", *_labelled("What happened", report.message), *_labelled("What to do", report.advice)]
    lines += _section("Failed", report.failed, _failure)
    lines += _section("Still at work", report.unfinished, _short)
    lines += _section("Completed", report.completed, _short)
    lines += _section("Taken out by an operator", report.deleted, _removal)
    return "\n".join(lines) + "\n"


def headline(report: BatchReport) -> str:
    """One sentence: how the batch stands."""
    counts = report.counts
    if not counts.total:
        return f"{report.bid}: no object could be made of this submission."
    parts = [f"{counts.completed} of {counts.total} completed"]
    for number, what in (
        (counts.failed, "failed"),
        (counts.unfinished, "still at work"),
        (counts.deleted, "taken out"),
    ):
        if number:
            parts.append(f"{number} {what}")
    changed = f" What changed since {_time(report.since)}:" if report.since else ""
    return f"{report.bid}: {', '.join(parts)}.{changed}"


def facts(report: BatchReport) -> tuple[tuple[str, str], ...]:
    """What is known of the submission, by name; '' where nothing is."""
    return (
        ("Collection", report.profile_name),
        ("Submitted", f"{_time(report.submitted_at)}{' by ' if report.submitter else ''}{report.submitter}"),
        ("Payload", f"{report.payload_name} ({report.payload_type})".strip()),
        ("Note", report.note),
        ("Reported", _time(report.reported_at)),
    )


def _facts(report: BatchReport) -> Iterator[str]:
    for name, value in facts(report):
        if value:
            yield from _labelled(name, value, indent="", width=12)


def _section(
    title: str, jobs: Sequence[ReportedJob], tell: Callable[[ReportedJob], Iterator[str]]
) -> Iterator[str]:
    if not jobs:
        return
    yield from ("", f"{title}: {len(jobs)}")
    for job in jobs[:LISTED]:
        yield from tell(job)
    if len(jobs) > LISTED:
        yield f"  and {len(jobs) - LISTED} more"


def _short(job: ReportedJob) -> Iterator[str]:
    yield from _wrapped("  ".join(_names(job)), indent="  ")


def _failure(job: ReportedJob) -> Iterator[str]:
    yield ""
    yield from _short(job)
    yield from _labelled("what happened", job.message or "no message was left", indent="      ")
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
    """Lines of printable characters only: a file's name must not draw on a terminal or end a line."""
    plain = "".join(each if each.isprintable() else " " for each in text)
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
