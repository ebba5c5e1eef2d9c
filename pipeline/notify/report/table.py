"""A report as a table in CSV: one row for each object, for spreadsheets and scripts."""

import csv
import io

from pipeline.names import printable
from pipeline.notify.report.compose import BatchReport
from pipeline.notify.report.reported_jobs import ReportedJob

COLUMNS = ("object", "local id", "ARK", "title", "state", "job", "what happened", "what to do")

_FORMULA = ("=", "+", "-", "@", "\t")
"""First characters of what a spreadsheet would compute: a depositor's text must not run."""


def as_csv(report: BatchReport) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(COLUMNS)
    for _, jobs in report.sections:
        writer.writerows(map(_row, jobs))
    return text.getvalue()


def _row(job: ReportedJob) -> list[str]:
    return [
        cell(value)
        for value in (
            *(job.name, "; ".join(job.local_id), job.ark or "", job.title, job.state, job.jid),
            job.message or job.remark,
            job.advice,
        )
    ]


def cell(value: str) -> str:
    plain = printable(value, " ").replace("\n", " ")
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
