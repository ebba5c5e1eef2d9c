"""A report as a table in CSV: one row for each object, for spreadsheets and scripts."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from pipeline.names import printable
from pipeline.notify.report.compose import BatchReport
from pipeline.notify.report.reported_jobs import ReportedJob

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
