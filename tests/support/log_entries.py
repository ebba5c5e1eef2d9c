"""The entries of this process's log, for a test to look at."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from structlog.typing import EventDict


@contextmanager
def log_entries() -> Iterator[list[EventDict]]:
    """The entries that are logged in the block, also after another test has hidden or configured the log."""
    configured = structlog.get_config()
    structlog.reset_defaults()
    with capture_logs([merge_contextvars]) as entries:
        yield entries
    structlog.configure(**configured)
