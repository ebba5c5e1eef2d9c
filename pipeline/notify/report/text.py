"""A report as plain text that a depositor can act on, as JSON, and as a table in CSV."""

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from pipeline.names import printable
from pipeline.notify.report.compose import SECTION_ADVICE, BatchReport, ReportedJob
from pipeline.states import JobState

LISTED = 200
"""Maximum number of jobs per section of the text; the JSON has all of them."""

WIDTH = 78


def as_json(report: BatchReport) -> str:
    return report.model_dump_json(indent=1)


def as_text(report: BatchReport) -> str:
    lines = [*_wrapped(headline(report)), ""]
    for name, value in facts(report):
        lines += _labelled(name, value, width=13)
    if report.message:
        lines += ["", *_labelled("What happened", report.message), *_labelled("What to do", report.advice)]
    for title, jobs in report.sections:
        lines += _section(title, jobs)
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
    """The facts of the submission by name."""
    named = (
        ("Collection", report.profile_name),
        ("Submitted", f"{_time(report.submitted_at)}{' by ' if report.submitter else ''}{report.submitter}"),
        ("Payload", f"{report.payload_name} ({report.payload_type.label})".strip()),
        ("Note", report.note),
        ("State of", _time(report.reported_at)),
        ("Last report", _time(report.sent_at) if report.sent_at else ""),
    )
    return tuple((name, value) for name, value in named if value)


def _section(title: str, jobs: Sequence[ReportedJob]) -> Iterator[str]:
    if not jobs:
        return
    yield from ("", f"{title}: {len(jobs):,}")
    if title in SECTION_ADVICE:
        yield from _wrapped(SECTION_ADVICE[title], indent="  ", hanging="  ")
    for job in jobs[:LISTED]:
        yield from _described(job)
    if len(jobs) > LISTED:
        yield f"  and {len(jobs) - LISTED:,} more"


def _described(job: ReportedJob) -> Iterator[str]:
    local_ids = f"(local id {'; '.join(job.local_id)})" if job.local_id else ""
    title = f'"{job.title}"' if job.title else ""
    names = "  ".join(filter(None, (job.jid, job.name, title, job.ark, local_ids)))
    if job.state is not JobState.FAILED:
        yield from _wrapped(f"{names}: {job.message}" if job.message else names, indent="  ")
        if job.remark:
            yield from _labelled("please check", job.remark, indent="      ")
        return
    yield ""
    yield from _wrapped(names, indent="  ")
    yield from _labelled("what happened", job.message or "no message was recorded", indent="      ")
    yield from _labelled("what to do", job.advice, indent="      ")


def _labelled(name: str, value: str, *, indent: str = "", width: int = 15) -> Iterator[str]:
    head = f"{indent}{name + ':':<{width}}"
    yield from _wrapped(value, indent=head, hanging=" " * len(head))


def _wrapped(text: str, *, indent: str = "", hanging: str | None = None) -> list[str]:
    return textwrap.wrap(
        on_one_line(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if hanging is None else hanging,
        # URLs and ARKs stay whole, so that they can be copied
        break_long_words=False,
        break_on_hyphens=False,
    )


def on_one_line(text: str) -> str:
    """Without control characters: a file name must not move the cursor, end a line or change a page."""
    return printable(text, " ").replace("\n", " ")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


COLUMNS = ("object", "local id", "ARK", "title", "state", "job", "what happened", "what to do")

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Without this mark Excel reads UTF-8 as the code page of its country."""

_FORMULA = re.compile(r"(?:^|(?<=[;,\t]))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin to compute, also if it splits at another delimiter than ours or reads
full-width signs: a depositor's text must not run."""


def as_csv(report: BatchReport) -> str:
    return written(COLUMNS, (_row(job) for _, jobs in report.sections for job in jobs))


def written(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for spreadsheets (RFC 4180), in which nothing is computed."""
    text = io.StringIO()
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    writer.writerow(titles)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _row(job: ReportedJob) -> tuple[str, ...]:
    named = (job.name, "; ".join(job.local_id), job.ark or "", job.title, job.state, job.jid)
    return (*named, job.message or job.remark, job.advice)


def _cell(value: str) -> str:
    """The value on one line, with an apostrophe before whatever a spreadsheet would compute."""
    return _FORMULA.sub("'", printable(value, " ").replace("\n", " "))
