"""Mails to depositors: the report of a batch as text, HTML, JSON and CSV; the confirmation of receipt.

Rule: the HTML page is passive. Viewing it fetches nothing; it has no images and no scripts, and it links only
to the pages of this site, whose address is a setting.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from io import BytesIO
from urllib.parse import quote

from pipeline import names
from pipeline.humanize import counted
from pipeline.names import one_line
from pipeline.notify.batch_report import SECTION_ADVICE, BatchReport, ReportedJob, compose_update
from pipeline.notify.mail import message_id, set_sender, set_subject
from pipeline.profiles.profile import Profile
from pipeline.records import Batch, StatusReport, Submission
from pipeline.states import JobState

LISTED = 200
"""Maximum number of jobs per section of the text; the JSON has all of them."""

WIDTH = 78

NAME_WIDTH = 80
"""Maximum characters of a deposit's name in a subject."""


def as_json(report: BatchReport) -> str:
    return report.model_dump_json(indent=1)


def as_text(report: BatchReport, site: str = "") -> str:
    """The report as plain text; `site`: the address of the site's pages, for links."""
    lines = [*_wrapped(headline(report)), ""]
    for name, value in (*facts(report), *_page_line(report.bid, site)):
        lines += _labelled(name, value, width=13)
    if report.message:
        lines += ["", *_labelled("What happened", report.message), *_labelled("What to do", report.advice)]
    for title, jobs in report.sections:
        lines += _text_section(title, jobs, site)
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
        ("Deposit", f"{report.name} ({report.payload_type.label})".strip()),
        ("Note", report.note),
        ("State of", _time(report.reported_at)),
        ("Last report", _time(report.sent_at) if report.sent_at else ""),
    )
    return tuple((name, value) for name, value in named if value)


def _page_line(bid: str, site: str) -> tuple[tuple[str, str], ...]:
    return (("Page", f"{site}/batches/{bid}"),) if site else ()


def _object_page(ark: str, site: str) -> str:
    return f"{site}/objects/{quote(ark, safe='/:')}"


def _text_section(title: str, jobs: Sequence[ReportedJob], site: str) -> Iterator[str]:
    if not jobs:
        return
    yield from ("", f"{title}: {len(jobs):,}")
    if title in SECTION_ADVICE:
        yield from _wrapped(SECTION_ADVICE[title], indent="  ", hanging="  ")
    for job in jobs[:LISTED]:
        yield from _described(job, site)
    if len(jobs) > LISTED:
        yield f"  and {len(jobs) - LISTED:,} more"


def _described(job: ReportedJob, site: str) -> Iterator[str]:
    local_ids = f"(local id {'; '.join(job.local_id)})" if job.local_id else ""
    title = f'"{job.title}"' if job.title else ""
    names = "  ".join(filter(None, (job.jid, job.name, title, job.ark, local_ids)))
    if job.state is not JobState.FAILED:
        yield from _wrapped(f"{names}: {job.message}" if job.message else names, indent="  ")
        if site and job.ark and job.state is JobState.COMPLETED:
            yield f"      {_object_page(job.ark, site)}"
        if job.remark:
            yield from _labelled("please check", job.remark, indent="      ")
        yield from _checks_line(job)
        return
    yield ""
    yield from _wrapped(names, indent="  ")
    yield from _labelled("what happened", job.message or "no message was recorded", indent="      ")
    yield from _checks_line(job)
    yield from _labelled("what to do", job.advice, indent="      ")


def _checks_line(job: ReportedJob) -> Iterator[str]:
    """A text has no line for an object in which every check found every file fine."""
    if any(run.not_fine for run in job.checks or ()):
        yield from _labelled("checks", _checks(job), indent="      ")


def _checks(job: ReportedJob) -> str:
    """What every check found; of a failed object with the first files, since its remark is not shown."""
    failed = job.state is JobState.FAILED
    return ". ".join(run.text(names_files=failed) for run in job.checks or ())


def _labelled(name: str, value: str, *, indent: str = "", width: int = 15) -> Iterator[str]:
    head = f"{indent}{name + ':':<{width}}"
    yield from _wrapped(value, indent=head, hanging=" " * len(head))


def _wrapped(text: str, *, indent: str = "", hanging: str | None = None) -> list[str]:
    return textwrap.wrap(
        on_one_line(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  " if hanging is None else hanging,
        # keep URLs and ARKs whole, so that they can be copied
        break_long_words=False,
        break_on_hyphens=False,
    )


def on_one_line(text: str) -> str:
    """Replace control characters: a file name must not move the cursor, end a line or change a page."""
    return one_line(text, " ")


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


COLUMNS = ("object", "local id", "ARK", "title", "state", "job", "what happened", "what to do", "checks")

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Without this mark Excel reads UTF-8 as the code page of its country."""

_FORMULA = re.compile(r"(?:^|(?<=[;,\t]))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would start a formula, even if it splits at another delimiter or reads full-width
characters: a depositor's text must not be executed."""


def as_csv(report: BatchReport) -> str:
    return written(COLUMNS, (_csv_row(job) for _, jobs in report.sections for job in jobs))


def written(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """CSV for spreadsheets (RFC 4180), in which no cell is read as a formula."""
    text = io.StringIO()
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    writer.writerow(titles)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _csv_row(job: ReportedJob) -> tuple[str, ...]:
    named = (job.name, "; ".join(job.local_id), job.ark or "", job.title, job.state, job.jid)
    return (*named, job.message or job.remark, job.advice, _checks(job))


def _cell(value: str) -> str:
    """The value on one line, with an apostrophe before anything that a spreadsheet would compute."""
    return _FORMULA.sub("'", one_line(value, " "))


_HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
    '<body style="font-family: sans-serif; line-height: 1.4; max-width: 60em">'
)
_CELL = '<td style="padding: 0.2em 1em 0.2em 0; vertical-align: top">{}</td>'
_CHECKS = "checks"
_COLUMNS = {
    "Failed": ("job", "file", "title", "local ids", "what happened", _CHECKS, "what to do"),
    "In progress": ("job", "file", "title", "local ids", _CHECKS),
    "Completed": ("job", "file", "title", "local ids", "object", "please check", _CHECKS),
    "Deleted by our staff": ("job", "file", "title", "local ids", "reason"),
}


@dataclass(frozen=True)
class Section:
    """A table of the objects with one outcome."""

    title: str
    advice: str
    """Advice for all objects; empty if they have their own."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int
    """The number of all objects; the rows are the first LISTED."""


def as_html(report: BatchReport, site: str = "") -> str:
    """The report as a page; `site`: the address of the site's pages, for links."""
    lines = [_HEAD.format(title=_text(report.bid)), f"<h1>{_text(headline(report))}</h1>", "<table>"]
    lines += [_html_row(f"<strong>{_text(name)}</strong>", _text(value)) for name, value in facts(report)]
    lines += [
        _html_row(f"<strong>{name}</strong>", _link(url, url)) for name, url in _page_line(report.bid, site)
    ]
    lines.append("</table>")
    if report.message:
        lines.append(f"<p><strong>What happened:</strong> {_text(report.message)}</p>")
        lines.append(f"<p><strong>What to do:</strong> {_text(report.advice)}</p>")
    for section in sections(report):
        lines += _html_section(section, site)
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
    """The non-empty tables of a report."""
    for title, jobs in report.sections:
        if jobs:
            cells = tuple(map(_cells, jobs[:LISTED]))
            checked = any(cell[_CHECKS] for cell in cells)
            columns = tuple(name for name in _COLUMNS[title] if checked or name != _CHECKS)
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
        _CHECKS: _checks(job),
        "what to do": job.advice,
    }


def _link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}">{_text(text)}</a>'


def _html_section(section: Section, site: str) -> Iterator[str]:
    yield f"<h2>{section.title}: {section.count:,}</h2>"
    if section.advice:
        yield f"<p>{_text(section.advice)}</p>"
    yield "<table>"
    yield _html_row(*(f"<strong>{column}</strong>" for column in section.columns))
    for row in section.rows:
        cells = zip(section.columns, row, strict=True)
        yield _html_row(
            *(
                _link(_object_page(cell, site), cell) if site and cell and column == "object" else _text(cell)
                for column, cell in cells
            )
        )
    yield "</table>"
    if section.count > len(section.rows):
        yield f"<p>and {section.count - len(section.rows):,} more</p>"


def _html_row(*cells: str) -> str:
    return f"<tr>{''.join(_CELL.format(cell) for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(on_one_line(text))


ATTACHED_PLAIN = 2_000_000
"""Maximum bytes of an uncompressed attachment: mail servers refuse messages above 10 to 25 MB."""

# RFC 5321 4.5.3.1 and 5322 3.4.1, without comments, quotes and address literals; plain ASCII
# no encoded word: Python decodes it, also to several addresses or to a line end
_ADDRESS = re.compile(
    r"(?!.*=\?)[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
)


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


@dataclass(frozen=True)
class Recipients:
    addresses: tuple[str, ...]
    refused: tuple[str, ...]
    """Entries that are not mail addresses; the mail names them to the other recipients."""


def recipients(profile: Profile, submission: Submission) -> Recipients:
    """The collection's and the submission's recipients, without duplicates; an entry may list several."""
    given = names.mail_addresses((*profile.notification, *submission.notification))
    # in practice, addresses that differ only in case belong to the same person
    by_key: dict[str, str] = {}
    for address in given:
        by_key.setdefault(address.casefold(), address)
    valid = tuple(address for address in by_key.values() if is_address(address))
    return Recipients(valid, tuple(address for address in by_key.values() if address not in valid))


def subject_of(report: BatchReport) -> str:
    """`demo: 2 of 40 objects not stored (Harbour views)`: what a list of mails shows first."""
    counts = report.counts
    objects = counted(counts.total, "object")
    if not counts.total:
        outcome = "no objects could be created"
    elif counts.failed:
        outcome = f"{counts.failed:,} of {objects} not stored"
    else:
        outcome = (
            f"{objects if counts.completed == counts.total else f'{counts.completed:,} of {objects}'} stored"
        )
    return _subject(report.profile_name, f"update: {outcome}" if report.since else outcome, report.name)


def _subject(profile: str, outcome: str, name: str) -> str:
    return on_one_line(f"{profile}: {outcome} ({textwrap.shorten(name, NAME_WIDTH, placeholder='…')})")


def report_mail(
    report: BatchReport, profile: Profile, submission: Submission, sender: str, site: str = ""
) -> EmailMessage:
    """The report as a mail; the same report always gives the same bytes.

    A mail without recipients is written to an outbox, for the operator, but not sent by SMTP. `site`: the
    address of the site's pages, for links.
    """
    to = recipients(profile, submission)
    lists = {"completed": report.completed, "failed": report.failed}
    attached = {name: jobs for name, jobs in lists.items() if jobs}
    more = _refused_line(to)
    if attached:
        names = " and ".join(f"{name}.json" for name in attached)
        more = f"\nThe complete lists are attached for use by programs: {names}.\n{more}"
    body = as_text(report, site) + more
    page = as_html(report, site).replace("</body>", f"{as_paragraphs(more)}</body>")
    message = _mail(sender, to, subject_of(report), report.reported_at, body, page)
    message["Message-ID"] = message_id(f"{report.bid}.report-{report.number}", site)
    if report.number > 1:
        message["In-Reply-To"] = message_id(f"{report.bid}.report-1", site)
    for name, jobs in attached.items():
        _attach(message, f"{name}.json", _written(f"{name}Jobs", jobs))
    return _repeatable(message, body)


def next_report(report: BatchReport, batch: Batch, since: StatusReport | None) -> BatchReport | None:
    """The next report to send for a batch; None if nothing has changed.

    `since`: for an update, the state in the last report.
    """
    changed = report if since is None else compose_update(report, since)
    # the date at which reporting began, so that every attempt composes the same mail
    again = {"number": batch.status.reports + 1, "reported_at": batch.status.last_modified}
    return None if changed is None else changed.model_copy(update=again)


def report_text(mail: EmailMessage) -> str:
    """The plain text of a report's mail."""
    part = mail.get_body(("plain",))
    assert part is not None, "every mail of _mail has a text"
    return str(part.get_content())


def confirmation_mail(
    bid: str, submission: Submission, profile: Profile, jobs: int, sender: str, site: str = ""
) -> EmailMessage:
    """A mail that confirms a submission, with its number of objects."""
    to = recipients(profile, submission)
    name = submission.name
    objects = counted(jobs, "object")
    body = (
        f"We received your submission {bid}: {objects} will be created.\n"
        "You will get a report when the whole submission has been processed.\n\n"
        f"Collection: {submission.profile_name}\n"
        f"Deposit:    {on_one_line(name)} ({submission.type.label})\n"
    )
    if submission.note:
        body += f"Note:       {on_one_line(submission.note)}\n"
    body += "".join(f"{name}:       {url}\n" for name, url in _page_line(bid, site))
    body += _refused_line(to)
    subject = _subject(submission.profile_name, f"received, {objects}", name)
    message = _mail(sender, to, subject, submission.submitted_at, body, text_page(subject, body))
    message["Message-ID"] = message_id(f"{bid}.confirmation", site)
    return _repeatable(message, body)


def _repeatable(message: EmailMessage, body: str) -> EmailMessage:
    """Derive part boundaries from the text, so that composing the mail again gives the same bytes.

    RFC 2046 allows 70 characters. A header line has 78: a longer boundary would be split as in RFC 2231,
    which some mail programs cannot read, so that they would show nothing.
    """
    digest = hashlib.sha256(body.encode()).hexdigest()[:32]
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"{digest}-{number}")
    return message


def _mail(sender: str, to: Recipients, subject: str, date: datetime, body: str, page: str) -> EmailMessage:
    message = EmailMessage()
    set_sender(message, sender)
    if to.addresses:
        message["To"] = ", ".join(to.addresses)
    set_subject(message, subject)
    message["Date"] = format_datetime(date.astimezone(UTC))
    # RFC 3834: keeps out-of-office programs from answering
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(body)
    message.add_alternative(page, subtype="html")
    return message


def _refused_line(to: Recipients) -> str:
    if not to.refused:
        return ""
    listed = ", ".join(map(repr, to.refused))
    return f"\nThis mail was not sent to entries that are not mail addresses: {listed}\n"


def _written(title: str, jobs: Iterable[ReportedJob]) -> Iterator[bytes]:
    """A JSON document with one list, yielded job by job: a batch may have 100,000."""
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
