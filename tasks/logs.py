"""JSON logs on standard error: one object per line, with bid, jid, state and attempt where they are known.

structlog takes a tenth of a second to load, and most commands log nothing: it is loaded with the first line.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from pipeline.settings import ignored_settings

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger

_NAME = "arkline"

_FIRST = ("timestamp", "level", "event", "logger", "bid", "jid", "state", "attempt")
"""Keys of a line, in this order; the others follow."""

_VERBOSE = ("kazoo", "celery.beat", "celery.worker.strategy", "celery.app.trace")
"""Loggers that report every tick and every message; tasks.run logs the moves."""

_OF_COMMANDS = logging.getLogger("arkline.commands")
"""Its level is the lowest that a command shows; kept here until structlog is loaded."""


class _Lines:
    """Writes lines without a lock. A child process would wait for ever for a lock held during the fork."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    debug = info = warning = error = critical = msg


def _structlog() -> Any:
    import structlog

    return structlog


@cache
def _warn_of_ignored_settings() -> None:
    """Warn once per process."""
    for sentence in ignored_settings():
        log().warning(sentence)


def configure(level: str = "INFO") -> None:
    """Send this project's and the libraries' logs to standard error, in the same form.

    This project's lines do not pass through the standard library's logging, which doubles their cost.
    """
    structlog = _structlog()
    context = (structlog.contextvars.merge_contextvars, structlog.stdlib.add_log_level)
    ending = (structlog.processors.TimeStamper(fmt="iso", utc=True), structlog.processors.format_exc_info)
    as_json = structlog.processors.JSONRenderer()
    lines = _Lines(sys.stderr)
    structlog.configure(
        processors=[*context, _add_name, *ending, _in_order, as_json],
        logger_factory=lambda *_: lines,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*context, structlog.stdlib.add_logger_name, *ending],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _in_order, as_json],
        )
    )
    root = logging.getLogger()
    root.handlers = [writer]
    root.setLevel(level.upper())
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    _warn_of_ignored_settings()


def _add_name(_logger: object, _method: str, event: EventDict) -> EventDict:
    event["logger"] = _NAME
    return event


def _in_order(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Put time, level and message first: people read the beginnings of lines."""
    return {**{name: event[name] for name in _FIRST if name in event}, **event}


def show_from(level: int) -> None:
    """Hide log lines below `level` in a command, which reports the result itself."""
    _OF_COMMANDS.setLevel(level)
    if "structlog" in sys.modules:
        _print_from(level)


def _print_from(level: int) -> None:
    structlog = _structlog()
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def log() -> FilteringBoundLogger:
    structlog = _structlog()
    if _OF_COMMANDS.level and not structlog.is_configured():
        _print_from(_OF_COMMANDS.level)
    bound: FilteringBoundLogger = structlog.get_logger()
    return bound
