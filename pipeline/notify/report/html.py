"""A report as an HTML page: the second form of the mail, with the same facts as the text.

Rule: the page is passive. Reading it fetches nothing; it has no links made from submitted values, no images
and no scripts.
"""

from collections.abc import Iterator, Sequence
from html import escape

from pipeline.notify.report.compose import BatchReport, ReportedJob
from pipeline.notify.report.text import LISTED, facts, headline

_HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
    '<body style="font-family: sans-serif; line-height: 1.4; max-width: 60em">'
)
_CELL = '<td style="padding: 0.2em 1em 0.2em 0; vertical-align: top">{}</td>'
_COLUMNS = {
    "Failed": ("job", "file", "local ids", "what happened", "what to do"),
    "In progress": ("job", "file", "local ids"),
    "Completed": ("job", "file", "local ids", "object"),
    "Deleted by our staff": ("job", "file", "local ids", "reason"),
}


def as_html(report: BatchReport) -> str:
    """Failures come first, because they need action."""
    lines = [_HEAD.format(title=_text(report.bid)), f"<h1>{_text(headline(report))}</h1>"]
    lines += _facts(report)
    if report.message:
        lines.append(f"<p><strong>What happened:</strong> {_text(report.message)}</p>")
        lines.append(f"<p><strong>What to do:</strong> {_text(report.advice)}</p>")
    for title, jobs in (
        ("Failed", report.failed),
        ("In progress", report.unfinished),
        ("Completed", report.completed),
        ("Deleted by our staff", report.deleted),
    ):
        lines += _section(title, jobs)
    return "\n".join([*lines, "</body></html>", ""])


def text_page(title: str, text: str) -> str:
    """A page of plain text."""
    return "\n".join([_HEAD.format(title=_text(title)), as_paragraphs(text), "</body></html>", ""])


def as_paragraphs(text: str) -> str:
    """The text as HTML paragraphs; line breaks are kept."""
    return "\n".join(f"<p>{_lines(part)}</p>" for part in text.strip().split("\n\n") if part)


def _lines(text: str) -> str:
    return "<br>\n".join(_text(line) for line in text.splitlines())


def _facts(report: BatchReport) -> Iterator[str]:
    yield "<table>"
    for name, value in facts(report):
        if value:
            yield _row(f"<strong>{_text(name)}</strong>", _text(value))
    yield "</table>"


def _section(title: str, jobs: Sequence[ReportedJob]) -> Iterator[str]:
    if not jobs:
        return
    columns = _COLUMNS[title]
    yield f"<h2>{title}: {len(jobs):,}</h2>"
    yield "<table>"
    yield _row(*(f"<strong>{column}</strong>" for column in columns))
    for job in jobs[:LISTED]:
        cells = {
            "job": job.jid,
            "file": job.name,
            "local ids": "; ".join(job.local_id),
            "object": job.ark or "",
            "what happened": job.message or "no message was recorded",
            "reason": job.message,
            "what to do": job.advice,
        }
        yield _row(*(_text(cells[column]) for column in columns))
    yield "</table>"
    if len(jobs) > LISTED:
        yield f"<p>and {len(jobs) - LISTED:,} more</p>"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(_CELL.format(cell) for cell in cells)}</tr>"


def _text(text: str) -> str:
    """Escaped, and without control characters: a file name must not change the page."""
    return escape("".join(c if c.isprintable() else " " for c in text))
