"""The broker and the workers behind it, as values."""

from urllib.parse import urlsplit

from pipeline.records import Record
from pipeline.settings import Settings


class Worker(Record):
    """A worker that answers."""

    name: str
    queues: tuple[str, ...]
    """Empty if it was drained."""
    processes: int = 0
    busy: int = 0
    """Processes that work on a task now."""


def broker_address(settings: Settings) -> str:
    """Host and port, without the password."""
    parts = urlsplit(settings.broker_url)
    return f"{parts.hostname or '?'}:{parts.port or 6379}"
