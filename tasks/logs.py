"""JSON logs on standard error: one object a line, with bid, jid, state and attempt where they are known."""

import logging
import sys

import structlog
from structlog.typing import Processor

_VERBOSE = ("kazoo", "alembic", "celery.beat", "celery.worker.strategy", "celery.app.trace")
"""Loggers that report every tick and every message; tasks.run logs the moves."""

_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure(level: str = "INFO") -> None:
    """Send this project's and the libraries' logs through one JSON writer."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
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


def log() -> structlog.stdlib.BoundLogger:
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("arkline")
    return bound
