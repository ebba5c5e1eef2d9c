"""Mail to depositors and operators: written to an outbox folder, or sent by SMTP."""

import hashlib
import logging
import re
import smtplib
import ssl
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from pipeline import causes
from pipeline.checks import CheckVerdict
from pipeline.file_system import make_synced, write_whole
from pipeline.inventory.base import PreservationEvent
from pipeline.inventory.description import FAIL
from pipeline.inventory.findings import UnreportedRun
from pipeline.names import one_line
from pipeline.outcome import REMEDIES, Service, ServiceDown, StepFailed, fault_of, system, transient
from pipeline.settings import Settings

_log = logging.getLogger(__name__)

SMTP_TIMEOUT = 30.0
"""Seconds to wait for the connection, and for every answer."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._@-]")


class Mailer(Protocol):
    def send(self, message: EmailMessage) -> str:
        """Deliver the message; returns who did not get it and why, empty if all did.

        In an outbox, messages with the same Message-ID are one file.
        """


class OutboxMailer:
    """Writes every message, even one without recipients, to an .eml file that mail programs can open.

    In a repository without a mail server, people read the reports in the outbox.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def send(self, message: EmailMessage) -> str:
        target = self.folder / f"{_file_name(message)}.eml"
        draft = self.folder / f".{uuid.uuid4().hex}.draft"
        try:
            if not self.folder.is_dir():
                make_synced(self.folder)
            try:
                write_whole(target, message.as_bytes(), draft)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            problem = f"mail cannot be written to the outbox {target}: {error.strerror}"
            raise ServiceDown(Service.MAIL, problem, of_host=True) from error
        return ""


def _file_name(message: EmailMessage) -> str:
    name = str(message["Message-ID"] or "").strip().strip("<>")
    safe = _UNSAFE.sub("_", name).lstrip(".")[:150]
    if safe == name and safe:
        return safe
    # two Message-IDs may differ only in what was replaced or cut
    return f"{safe}-{hashlib.sha256(name.encode() or message.as_bytes()).hexdigest()[:16]}"


@dataclass(frozen=True)
class SmtpMailer:
    """Sends messages through one mail server; a message without recipients is not sent."""

    host: str
    port: int
    user: str = ""
    password: SecretStr = field(default_factory=lambda: SecretStr(""))
    tls: bool = False
    """Encrypt from the first byte; `starttls` is then ignored."""
    starttls: bool = False
    trust: ssl.SSLContext | None = None
    """Default: the certificate authorities of this host."""
    timeout: float = SMTP_TIMEOUT

    @property
    def _server(self) -> str:
        return f"the mail server {self.host}:{self.port}"

    @fault_of(Service.MAIL)
    def send(self, message: EmailMessage) -> str:
        if not any(message.get_all(name) for name in ("To", "Cc", "Bcc")):
            return ""
        try:
            refused = self._deliver(message)
        except (OSError, smtplib.SMTPException) as error:
            raise self._failure(error) from error
        if not refused:
            return ""
        # A failure would send the message again to recipients who already have it.
        problem = f"{self._server} refused some recipients: {_recipients(refused)}"
        _log.warning("%s", problem)
        return problem

    @fault_of(Service.MAIL)
    def check(self) -> None:
        """Log in, and send nothing; ServiceDown or StepFailed says why the server cannot be used."""
        try:
            with self._connected() as connection:
                connection.noop()
        except (OSError, smtplib.SMTPException) as error:
            raise self._failure(error) from error

    def _deliver(self, message: EmailMessage) -> dict[str, tuple[int, bytes]]:
        with self._connected() as connection:
            return connection.send_message(message)

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """A connection that is logged in."""
        with self._opened() as connection:
            if self.starttls and not self.tls:
                connection.starttls(context=self._trusted())
            if self.user:
                connection.login(self.user, self.password.get_secret_value())
            yield connection

    def _opened(self) -> smtplib.SMTP:
        if self.tls:
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout, context=self._trusted())
        return smtplib.SMTP(self.host, self.port, timeout=self.timeout)

    def _trusted(self) -> ssl.SSLContext:
        return self.trust or ssl.create_default_context()

    def _failure(self, error: Exception) -> StepFailed:
        make: Callable[[str], StepFailed] = system
        match error:
            case ssl.SSLCertVerificationError():
                make = transient
                problem = f"has a certificate that is not trusted: {error.verify_message}"
            case smtplib.SMTPAuthenticationError():
                make = transient
                problem = f"refused the login of '{self.user}' ({error.smtp_code})"
            case smtplib.SMTPNotSupportedError():
                make = transient
                problem = f"does not support what the settings require: {error}"
            case smtplib.SMTPRecipientsRefused():
                make = _by_code(min(code for code, _ in error.recipients.values()))
                problem = f"refused every recipient: {_recipients(error.recipients)}"
            case smtplib.SMTPSenderRefused():
                make = transient  # every mail of this sender is refused until ARKLINE_MAIL_FROM is corrected
                problem = f"refused the sender {error.sender}: {_reply(error)}"
            case smtplib.SMTPResponseException():
                make = _by_code(error.smtp_code)
                problem = f"refused the message: {_reply(error)}"
            case _:
                make = transient
                problem = f"does not answer: {error}"
        return make(f"{self._server} {problem}")


def _by_code(code: int) -> Callable[[str], StepFailed]:
    # RFC 5321 4.2.1: 4yz may succeed later, 5yz will not
    return system if code >= 500 else transient


def _reply(error: smtplib.SMTPResponseException) -> str:
    return f"{error.smtp_code} {_one_line(error.smtp_error)}"


def _recipients(refused: dict[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{address} ({code} {_one_line(text)})" for address, (code, text) in refused.items())


def _one_line(text: bytes | str) -> str:
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return " ".join(plain.split())[:200]


def open_mailer(settings: Settings) -> Mailer:
    """The SMTP mailer if the settings name a mail server, else the outbox."""
    if not settings.smtp_host:
        return OutboxMailer(settings.outbox_folder)
    return SmtpMailer(
        host=settings.smtp_host,
        port=settings.smtp_port,
        user=settings.smtp_user,
        password=settings.smtp_password,
        tls=settings.smtp_tls,
        starttls=settings.smtp_starttls,
    )


NAMED_FILES = 20
"""Maximum damaged files that a notice names."""


def notice(
    settings: Settings, subject: str, text: str, key: str, at: datetime, *, to: str = ""
) -> EmailMessage:
    """A notice to `to`, else to the operator.

    Repetitions with the same `key` have the same Message-ID, so that mail programs show one.
    """
    message = EmailMessage()
    set_sender(message, settings.mail_from)
    if recipient := to or settings.operator_mail:
        message["To"] = recipient
    set_subject(message, subject)
    message["Date"] = format_datetime(at)
    name = f"notice-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    message["Message-ID"] = message_id(name, settings.public_url)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


def message_id(name: str, site: str) -> str:
    """A Message-ID of this repository: a test site and the real one number their batches alike, and of two
    mails with one Message-ID mail servers deliver the first. `site`: the address of the pages, or empty.

    A digest, because Python encodes an id that is longer than a line.
    """
    own = f"{hashlib.sha256(site.encode()).hexdigest()[:12]}." if site else ""
    return f"<{name}@{own}arkline>"


def set_subject(message: EmailMessage, text: str) -> None:
    """Python decodes an encoded word of RFC 2047, and writes a line end in it as a line end: a deposit's name
    would add headers and text. No word begins with `= ?`.
    """
    message["Subject"] = one_line(text, " ").replace("=?", "= ?")


def set_sender(message: EmailMessage, sender: str) -> None:
    """StepFailed(system) unless `sender` is one address, with or without a name."""
    try:
        message["From"] = sender
        addresses, defects = message["From"].addresses, message["From"].defects
    except (ValueError, IndexError):  # up to Python 3.12 for some addresses that later have defects
        addresses, defects = (), ()
    if len(addresses) != 1 or defects:
        raise system("the setting ARKLINE_MAIL_FROM is not a valid sender address; write name@host").because(
            causes.CONFIGURATION_INVALID()
        )


def fixity_notice(event: PreservationEvent, settings: Settings) -> EmailMessage:
    """The notice that a check found damage, or that the damage is repaired."""
    what = "damage in storage" if event.outcome == FAIL else "damage repaired"
    key = f"{event.type} {event.id} {event.at.isoformat()}"
    return notice(settings, f"arkline: {what}: {event.ark}", _fixity_text(event), key, event.at)


def check_notice(run: UnreportedRun, settings: Settings) -> EmailMessage:
    """The notice that a check found something in a stored version, for the first time."""
    of = run.summary
    problems = [finding for finding in of.findings if finding.verdict is CheckVerdict.FOUND]
    named = [f"  {finding.path}: {finding.code or finding.message}" for finding in problems[:NAMED_FILES]]
    lines = [
        f"The check {of.check} found something in version {run.number} of {run.ark}, which is stored.",
        f"The check has the version {of.version}. No earlier run of the check found anything there.",
        "",
        f"Files: {of.found:,}",
        *named,
        *([f"  and {of.found - len(named):,} more"] if of.found > len(named) else []),
        "",
        "Nothing was changed. The view of the object has all findings.",
    ]
    key = f"check {of.check} {run.id} {of.at.isoformat()}"
    return notice(settings, f"arkline: {of.check} found: {run.ark}", "\n".join(lines) + "\n", key, of.at)


def outage_notice(  # noqa: PLR0913 - the facts of one outage
    settings: Settings,
    name: str,
    *,
    since: datetime,
    message: str,
    hosts: Sequence[str],
    ended: datetime | None,
    unproven: bool = False,
) -> EmailMessage:
    """The notice that the outage `name` has begun or ended; `hosts`: those whose workers met the fault.

    `unproven`: it has ended because nothing waits for the service any more.
    """
    over = "is not needed now" if unproven else "works again"
    what = over if ended else "is unavailable"
    lines = [
        f"Service: {name}",
        f"Since:   {since:%Y-%m-%d %H:%M:%S} UTC",
        *([f"Until:   {ended:%Y-%m-%d %H:%M:%S} UTC"] if ended else []),
        f"Seen by: {', '.join(hosts)}",
        f"Message: {message}",
    ]
    if ended and unproven:
        lines += ["", "Nothing waits for the service any more, or has used it since: it may still be away."]
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
        lines += [f"* {file.place}: {file.what}.", f"  To do: {file.remedy}."]
    if event.damaged > NAMED_FILES:
        lines.append(f"* {event.damaged - NAMED_FILES:,} more are in the fixity report.")
    lines += ["", "Check the object again after the repair.", ""]
    return "\n".join(lines)
