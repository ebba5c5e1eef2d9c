"""What a depositor is told of a batch: composed from the record, as text, as JSON and as mail."""

from pipeline.notify.report.compose import (
    BatchReport,
    Counts,
    ReportedJob,
    compose_report,
    compose_update,
    told_by,
)
from pipeline.notify.report.html import as_html
from pipeline.notify.report.letters import (
    Recipients,
    confirmation_mail,
    recipients,
    report_letter,
    report_mail,
)
from pipeline.notify.report.text import as_json, as_text

__all__ = [
    "BatchReport",
    "Counts",
    "Recipients",
    "ReportedJob",
    "as_html",
    "as_json",
    "as_text",
    "compose_report",
    "compose_update",
    "confirmation_mail",
    "recipients",
    "report_letter",
    "report_mail",
    "told_by",
]
