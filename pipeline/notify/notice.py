"""Notices to the operator: short mails about faults that a person has to act on.

The mail goes to ARKLINE_OPERATOR_MAIL. Without that address and without a mail server it is written to the
outbox; without the address, a mail server gets nothing, and the log and the status are the only notice.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime

from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.events import FAIL
from pipeline.services import REMEDIES
from pipeline.settings import Settings

NAMED_FILES = 20
"""Damaged files that a notice names."""


def notice(settings: Settings, subject: str, text: str, key: str, at: datetime) -> EmailMessage:
    """A notice; a repetition with the same `key` has the same Message-ID, so mail programs show one."""
    message = EmailMessage()
    message["From"] = settings.mail_from
    if settings.operator_mail:
        message["To"] = settings.operator_mail
    message["Subject"] = subject
    message["Date"] = format_datetime(at)
    message["Message-ID"] = f"<notice-{hashlib.sha256(key.encode()).hexdigest()[:24]}@arkline>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


def fixity_notice(event: PreservationEvent, settings: Settings) -> EmailMessage:
    """The notice of damage that a check found, or of its repair."""
    what = "damage in storage" if event.outcome == FAIL else "damage repaired"
    key = f"{event.type} {event.id} {event.at.isoformat()}"
    return notice(settings, f"arkline: {what}: {event.ark}", _fixity_text(event), key, event.at)


def outage_notice(
    settings: Settings,
    name: str,
    *,
    since: datetime,
    message: str,
    hosts: Sequence[str],
    ended: datetime | None,
) -> EmailMessage:
    """The notice that the outage `name` began, or is over; `hosts`: those whose workers met the fault."""
    what = "works again" if ended else "is out of order"
    lines = [
        f"Service: {name}",
        f"Since:   {since:%Y-%m-%d %H:%M:%S} UTC",
        *([f"Until:   {ended:%Y-%m-%d %H:%M:%S} UTC"] if ended else []),
        f"Seen by: {', '.join(hosts)}",
        f"Message: {message}",
    ]
    if not ended:
        lines += ["", "Jobs that need the service wait. They continue by themselves once it works again."]
        if remedy := REMEDIES.get(name.partition(":")[0]):
            lines.append(f"To do: {remedy}.")
    key = f"outage {name} {since.isoformat()} {ended.isoformat() if ended else ''}"
    return notice(settings, f"arkline: {name} {what}", "\n".join(lines) + "\n", key, ended or since)


def _fixity_text(event: PreservationEvent) -> str:
    check = f"The fixity check of {event.ark} at {event.at:%Y-%m-%d %H:%M} UTC"
    if event.outcome != FAIL:
        return f"{check} found every file as it was stored. An earlier check had found damage.\n"
    problems = "1 problem" if event.damaged == 1 else f"{event.damaged:,} problems"
    lines = [f"{check} found damage in storage: {problems}. Nothing was changed.", ""]
    for file in event.files[:NAMED_FILES]:
        name = f"{file.path} of version {file.version}" if file.path else "the description of the object"
        lines += [f"* {name}: {file.what}.", f"  To do: {file.remedy}."]
    if event.damaged > NAMED_FILES:
        lines.append(f"* {event.damaged - NAMED_FILES:,} more are in the fixity report.")
    lines += ["", "Check the object again after the repair.", ""]
    return "\n".join(lines)
