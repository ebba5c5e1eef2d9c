"""The mails to depositors: the report of a batch, and the confirmation that a submission was received."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from io import BytesIO

from pipeline import names
from pipeline.notify.report.compose import BatchReport, ReportedJob, compose_update
from pipeline.notify.report.html import as_html, as_paragraphs, text_page
from pipeline.notify.report.text import as_text, on_one_line
from pipeline.outcome import system
from pipeline.profiles.profile import Profile
from pipeline.records import Batch, StatusReport, Submission
from pipeline.states import BatchState

ATTACHED_PLAIN = 2_000_000
"""Bytes; a larger attachment is compressed, because mail servers refuse messages above 10 to 25 MB."""

# RFC 5321 4.5.3.1 and 5322 3.4.1, without comments, quotes and address literals; plain ASCII
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
)


@dataclass(frozen=True)
class Recipients:
    addresses: tuple[str, ...]
    refused: tuple[str, ...]
    """Entries that are not mail addresses; the mail names them to the other recipients."""


def recipients(profile: Profile, submission: Submission) -> Recipients:
    """The recipients of the collection and of the submission, without repeats; an entry may list several."""
    given = names.mail_addresses((*profile.notification, *submission.notification))
    # in practice, addresses that differ only in case belong to the same person
    by_key: dict[str, str] = {}
    for address in given:
        by_key.setdefault(address.casefold(), address)
    valid = tuple(address for address in by_key.values() if _ADDRESS.fullmatch(address))
    return Recipients(valid, tuple(address for address in by_key.values() if address not in valid))


def report_mail(report: BatchReport, profile: Profile, submission: Submission, sender: str) -> EmailMessage:
    """The report as a mail; the same report always gives the same bytes.

    A mail without recipients is written to an outbox, for the operator, but is not sent by SMTP.
    """
    outcome = "OK" if report.status is BatchState.COMPLETED else "FAIL"
    action = "Updated" if report.since else "Processed"
    subject = f"Ingest: {outcome} -- Submission {action}: {report.bid}"
    to = recipients(profile, submission)
    lists = {"completed": report.completed, "failed": report.failed}
    attached = {name: jobs for name, jobs in lists.items() if jobs}
    more = _refused_line(to)
    if attached:
        names = " and ".join(f"{name}.json" for name in attached)
        more = f"\nThe complete lists are attached for use by programs: {names}.\n{more}"
    body = as_text(report) + more
    page = as_html(report).replace("</body>", f"{as_paragraphs(more)}</body>")
    message = _mail(sender, to, subject, report.reported_at, body, page)
    message["Message-ID"] = _identifier(report.bid, report.number)
    if report.number > 1:
        message["In-Reply-To"] = _identifier(report.bid, 1)
    for name, jobs in attached.items():
        _attach(message, f"{name}.json", _written(f"{name}Jobs", jobs))
    return _repeatable(message, body)


def next_report(report: BatchReport, batch: Batch, since: StatusReport | None) -> BatchReport | None:
    """The next report of a batch as it is to be sent; None if nothing changed.

    `since`: for an update, the state that the last report gave.
    """
    changed = report if since is None else compose_update(report, since)
    # the date at which reporting began: every attempt composes the same mail
    again = {"number": batch.status.reports + 1, "reported_at": batch.status.last_modified}
    return None if changed is None else changed.model_copy(update=again)


def report_text(mail: EmailMessage) -> str:
    """The text of a report's mail, for people."""
    part = mail.get_body(("plain",))
    assert part is not None, "every mail of _mail has a text"
    return str(part.get_content())


def confirmation_mail(
    bid: str, submission: Submission, profile: Profile, jobs: int, sender: str
) -> EmailMessage:
    """Confirms that a submission was received, with the number of objects in it."""
    to = recipients(profile, submission)
    name = submission.name
    objects = "1 object" if jobs == 1 else f"{jobs:,} objects"
    body = (
        f"We received your submission {bid}: {objects} will be created.\n"
        "You will get a report when the whole submission has been processed.\n\n"
        f"Collection: {submission.profile_name}\n"
        f"Payload:    {on_one_line(name)} ({submission.type.label})\n"
    )
    if submission.note:
        body += f"Note:       {on_one_line(submission.note)}\n"
    subject = f"Ingest: OK -- Submission Queued: {bid}"
    body += _refused_line(to)
    message = _mail(sender, to, subject, submission.submitted_at, body, text_page(subject, body))
    message["Message-ID"] = f"<{bid}.confirmation@arkline>"
    return _repeatable(message, body)


def _repeatable(message: EmailMessage, body: str) -> EmailMessage:
    """With part boundaries derived from the text: composing a mail again gives the same bytes.

    RFC 2046 allows 70 characters. A header line has 78: a longer boundary would be divided as RFC 2231 says,
    and some mail programs, which do not read that form, would show nothing.
    """
    digest = hashlib.sha256(body.encode()).hexdigest()[:32]
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"{digest}-{number}")
    return message


def _mail(sender: str, to: Recipients, subject: str, date: datetime, body: str, page: str) -> EmailMessage:
    message = EmailMessage()
    try:
        message["From"] = sender
    except (ValueError, IndexError) as error:  # the standard library has both for a broken address
        raise system(
            "the setting ARKLINE_MAIL_FROM is not a valid sender address; write name@host"
        ) from error
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


def _refused_line(to: Recipients) -> str:
    if not to.refused:
        return ""
    listed = ", ".join(map(repr, to.refused))
    return f"\nThis mail was not sent to entries that are not mail addresses: {listed}\n"


def _written(title: str, jobs: Iterable[ReportedJob]) -> Iterator[bytes]:
    """A JSON document of one list, a job at a time: a batch may have 100,000."""
    before = f'{{\n "{title}": ['
    for job in jobs:
        values = job.model_dump(mode="json", exclude_defaults=True)
        entry = json.dumps(values, ensure_ascii=False, indent=1).replace("\n", "\n  ")
        yield f"{before}\n  {entry}".encode()
        before = ","
    yield b"\n ]\n}"


def _attach(message: EmailMessage, name: str, document: Iterable[bytes]) -> None:
    """Attach a document, compressed if it is large."""
    plain, packed = bytearray(), BytesIO()
    with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as compressor:
        for part in document:
            compressor.write(part)
            if len(plain) <= ATTACHED_PLAIN:
                plain += part
    if len(plain) <= ATTACHED_PLAIN:
        message.add_attachment(bytes(plain), maintype="application", subtype="json", filename=name)
    else:
        packed_data = packed.getvalue()
        message.add_attachment(packed_data, maintype="application", subtype="gzip", filename=f"{name}.gz")
