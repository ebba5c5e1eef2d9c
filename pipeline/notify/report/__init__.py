"""The report that a depositor gets about a batch: composed from the record, as text, JSON and mail."""

from pipeline.notify.report.compose import (
    BatchReport,
    Counts,
    ReportedJob,
    compose_report,
    compose_update,
    status_report_of,
)
from pipeline.notify.report.html import as_html
from pipeline.notify.report.mails import (
    Recipients,
    confirmation_mail,
    next_report_mail,
    recipients,
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
    "next_report_mail",
    "recipients",
    "report_mail",
    "status_report_of",
]
