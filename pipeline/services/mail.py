"""Mail to depositors: written to an outbox folder, or sent by SMTP."""

from email.message import EmailMessage
from typing import Protocol


class Mailer(Protocol):
    def send(self, message: EmailMessage) -> None:
        """Deliver it; a message with the same Message-ID delivered twice to an outbox is one file."""
