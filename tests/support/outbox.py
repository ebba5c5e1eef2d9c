"""The mails that a deployment without a mail server has written."""

from email import message_from_bytes, policy
from email.message import EmailMessage

from pipeline.settings import Settings


def letters(settings: Settings) -> list[EmailMessage]:
    """In the order of their names."""
    files = sorted(settings.outbox_folder.glob("*.eml"))
    return [message_from_bytes(file.read_bytes(), policy=policy.default) for file in files]
