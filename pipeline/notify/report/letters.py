"""The mails: a report of a batch, and the confirmation that it was taken up."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from pipeline.notify.report.compose import BatchReport, ReportedJob, compose_report, compose_update
from pipeline.notify.report.html import as_html, as_paragraphs, text_page
from pipeline.notify.report.text import as_text
from pipeline.outcome import system
from pipeline.profiles.profile import Profile
from pipeline.records import Batch, Job, StatusReport, Submission
from pipeline.states import BatchState

ATTACHED_PLAIN = 2_000_000
"""Bytes of an attachment; larger ones are compressed, because mail servers refuse mails over 10 to 25 MB."""

# RFC 5321 4.5.3.1 and 5322 3.4.1, without comments, quotes and address literals; plain ASCII
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
)


@dataclass(frozen=True)
class Recipients:
    addresses: tuple[str, ...]
    refused: tuple[str, ...]
    """What was given as an address and is none; the mail says so to the others."""


def recipients(profile: Profile, submission: Submission) -> Recipients:
    """The collection's recipients and the submission's own, each once; one entry may hold several."""
    given = [
        part.strip()
        for entry in (*profile.notification, *submission.notification)
        for part in re.split(r"[,;]", entry)
        if part.strip()
    ]
    # addresses that differ in case only reach the same person almost everywhere
    distinct = {each.casefold(): each for each in reversed(given)}
    kept = [distinct[key] for key in dict.fromkeys(each.casefold() for each in given)]
    valid = tuple(each for each in kept if _ADDRESS.fullmatch(each))
    return Recipients(valid, tuple(each for each in kept if each not in valid))


def report_mail(report: BatchReport, profile: Profile, submission: Submission, sender: str) -> EmailMessage:
    """The report as a mail; made again of the same report it is the same, byte for byte.

    Without recipients it is addressed to nobody: an outbox keeps it for the operator, SMTP sends nothing.
    """
    outcome = "OK" if report.status is BatchState.COMPLETED else "FAIL"
    told = "Updated" if report.since else "Processed"
    subject = f"Ingest: {outcome} -- Submission {told}: {report.bid}"
    to = recipients(profile, submission)
    attachments = {
        "completed.json": ("completedJobs", report.completed),
        "failed.json": ("failedJobs", report.failed),
    }
    attached = {name: listed for name, listed in attachments.items() if listed[1]}
    more = _attached_line(attached) + _refused_line(to)
    body = as_text(report) + more
    page = as_html(report).replace("</body>", f"{as_paragraphs(more)}</body>")
    message = _letter(sender, to, subject, report.reported_at, body, page)
    message["Message-ID"] = _identifier(report.bid, report.number)
    if report.number > 1:
        message["In-Reply-To"] = _identifier(report.bid, 1)
    for name, (key, jobs) in attached.items():
        _attach(message, name, {key: [_entry(job) for job in jobs]})
    return _repeatable(message, body)


def report_letter(
    batch: Batch,
    jobs: Sequence[Job],
    deleted: Mapping[str, str],
    since: StatusReport | None,
    profile: Profile,
    sender: str,
) -> EmailMessage | None:
    """The next mail of a batch; None if nothing changed since the last, or its collection wants no mail.

    `deleted`: as in `compose_report`. `since`: set for an update, what the depositor was last told.
    """
    if not profile.sends_report:
        return None
    number = batch.status.reports + 1
    report = compose_report(batch, jobs, deleted, number=number, at=batch.status.last_modified)
    if since is not None:
        update = compose_update(report, since)
        if update is None:
            return None
        report = update
    return report_mail(report, profile, batch.submission, sender)


def confirmation_mail(
    bid: str, submission: Submission, profile: Profile, jobs: int, sender: str
) -> EmailMessage:
    """Tells that a submission was taken up, and of how many jobs it is made."""
    to = recipients(profile, submission)
    objects = "1 object" if jobs == 1 else f"{jobs} objects"
    body = (
        f"{bid}: this submission was taken up; {objects} will be made of it.\n"
        "You will be told how each of them ended.\n\n"
        f"Collection: {submission.profile_name}\n"
        f"Payload:    {_one_line(submission.payload_name)} ({submission.payload_type})\n"
    )
    if submission.note:
        body += f"Note:       {_one_line(submission.note)}\n"
    subject = f"Ingest: OK -- Submission Queued: {bid}"
    body += _refused_line(to)
    message = _letter(sender, to, subject, submission.submitted_at, body, text_page(subject, body))
    message["Message-ID"] = f"<{bid}.confirmation@arkline>"
    return _repeatable(message, body)


def _repeatable(message: EmailMessage, body: str) -> EmailMessage:
    """With boundaries made of the text: the same letter is the same bytes whenever it is made."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"{digest}-{number}")
    return message


def _letter(sender: str, to: Recipients, subject: str, date: datetime, body: str, page: str) -> EmailMessage:
    message = EmailMessage()
    try:
        message["From"] = sender
    except ValueError as error:
        raise system("the setting ARKLINE_MAIL_FROM is not a sender of mail; write name@host") from error
    if to.addresses:
        message["To"] = ", ".join(to.addresses)
    message["Subject"] = subject
    message["Date"] = format_datetime(date.astimezone(UTC))
    # RFC 3834: keeps out-of-office programs from answering
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(body)
    message.add_alternative(page, subtype="html")
    return message


def _identifier(bid: str, number: int) -> str:
    return f"<{bid}.report-{number}@arkline>"


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _attached_line(names: Iterable[str]) -> str:
    listed = " and ".join(names)
    return f"\nAll of them, for programs: {listed}, attached.\n" if listed else ""


def _refused_line(to: Recipients) -> str:
    if not to.refused:
        return ""
    listed = ", ".join(repr(each) for each in to.refused)
    return f"\nNot told, because these are not mail addresses: {listed}\n"


def _entry(job: ReportedJob) -> dict[str, Any]:
    return job.model_dump(mode="json", exclude_defaults=True)


def _attach(message: EmailMessage, name: str, value: dict[str, Any]) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=1).encode()
    if len(data) <= ATTACHED_PLAIN:
        message.add_attachment(data, maintype="application", subtype="json", filename=name)
    else:
        packed = gzip.compress(data, mtime=0)
        message.add_attachment(packed, maintype="application", subtype="gzip", filename=f"{name}.gz")
