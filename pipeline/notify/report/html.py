"""A report as an HTML page: the second form of the mail, with the same facts as the text.

Rule: the page is passive. Reading it fetches nothing; it has no links made from submitted values, no images
and no scripts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from pipeline.notify.report.compose import SECTION_ADVICE, BatchReport, ReportedJob
from pipeline.notify.report.text import LISTED, facts, headline, on_one_line

_HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
    '<body style="font-family: sans-serif; line-height: 1.4; max-width: 60em">'
)
_CELL = '<td style="padding: 0.2em 1em 0.2em 0; vertical-align: top">{}</td>'
_COLUMNS = {
    "Failed": ("job", "file", "title", "local ids", "what happened", "what to do"),
    "In progress": ("job", "file", "title", "local ids"),
    "Completed": ("job", "file", "title", "local ids", "object", "please check"),
    "Deleted by our staff": ("job", "file", "title", "local ids", "reason"),
}


@dataclass(frozen=True)
class Section:
    """The objects of one outcome, as a table."""

    title: str
    advice: str
    """About all of them; empty if each has its own."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int
    """Of all objects; the rows are the first LISTED."""


def as_html(report: BatchReport) -> str:
    lines = [_HEAD.format(title=_text(report.bid)), f"<h1>{_text(headline(report))}</h1>", "<table>"]
    lines += [_row(f"<strong>{_text(name)}</strong>", _text(value)) for name, value in facts(report)]
    lines.append("</table>")
    if report.message:
        lines.append(f"<p><strong>What happened:</strong> {_text(report.message)}</p>")
        lines.append(f"<p><strong>What to do:</strong> {_text(report.advice)}</p>")
    for section in sections(report):
        lines += _section(section)
    return "\n".join([*lines, "</body></html>", ""])


def text_page(title: str, text: str) -> str:
    """A page of plain text."""
    return "\n".join([_HEAD.format(title=_text(title)), as_paragraphs(text), "</body></html>", ""])


def as_paragraphs(text: str) -> str:
    """The text as HTML paragraphs; line breaks are kept."""
    return "\n".join(f"<p>{_lines(part)}</p>" for part in text.strip().split("\n\n") if part)


def _lines(text: str) -> str:
    return "<br>\n".join(_text(line) for line in text.splitlines())


def sections(report: BatchReport) -> Iterator[Section]:
    """The tables of a report, without those that have no object."""
    for title, jobs in report.sections:
        if jobs:
            columns = _COLUMNS[title]
            cells = map(_cells, jobs[:LISTED])
            rows = tuple(tuple(on_one_line(cell[column]) for column in columns) for cell in cells)
            yield Section(title, SECTION_ADVICE.get(title, ""), columns, rows, len(jobs))


def _cells(job: ReportedJob) -> dict[str, str]:
    return {
        "job": job.jid,
        "file": job.name,
        "title": job.title,
        "local ids": "; ".join(job.local_id),
        "object": job.ark or "",
        "what happened": job.message or "no message was recorded",
        "reason": job.message,
        "please check": job.remark,
        "what to do": job.advice,
    }


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{section.title}: {section.count:,}</h2>"
    if section.advice:
        yield f"<p>{_text(section.advice)}</p>"
    yield "<table>"
    yield _row(*(f"<strong>{column}</strong>" for column in section.columns))
    yield from (_row(*map(_text, row)) for row in section.rows)
    yield "</table>"
    if section.count > len(section.rows):
        yield f"<p>and {section.count - len(section.rows):,} more</p>"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(_CELL.format(cell) for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(on_one_line(text))
