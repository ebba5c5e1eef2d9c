"""JSON logs on standard error: one object a line, with bid, jid, state and attempt where they are known.

structlog takes a tenth of a second to load, and most commands log nothing: it is loaded by the first line.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.typing import Processor

_VERBOSE = ("kazoo", "alembic", "celery.beat", "celery.worker.strategy", "celery.app.trace")
"""Loggers that report every tick and every message; tasks.run logs the moves."""

_OF_COMMANDS = logging.getLogger("arkline.commands")
"""Its level is that from which on a command shows log lines, until structlog is loaded and knows it."""


def configure(level: str = "INFO") -> None:
    """Send this project's and the libraries' logs through one JSON writer."""
    import structlog

    shared: tuple[Processor, ...] = (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [writer]
    root.setLevel(level.upper())
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def show_from(level: int) -> None:
    """In a command, which reports the result itself: log lines below `level` are hidden."""
    _OF_COMMANDS.setLevel(level)
    if "structlog" in sys.modules:
        _print_from(level)


def _print_from(level: int) -> None:
    import structlog

    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def log() -> BoundLogger:
    import structlog

    if _OF_COMMANDS.level and not structlog.is_configured():
        _print_from(_OF_COMMANDS.level)
    bound: BoundLogger = structlog.stdlib.get_logger("arkline")
    return bound
