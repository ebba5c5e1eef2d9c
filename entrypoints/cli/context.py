"""The settings, sessions and clients of a command, opened only when the command needs them.

SQLAlchemy, requests and structlog take most of a second to load: they are imported where a command opens what
needs them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from zkstate.session import Session, connect

if TYPE_CHECKING:
    from operations.archive import Archive
    from pipeline.inventory.sql import SqlInventory
    from pipeline.storage.base import Storage

CONNECT_SECONDS = 5.0
"""Seconds to wait for the first answer of ZooKeeper."""


def settings() -> Settings:
    """The settings of the environment; UsageRefused names the variable that cannot be read."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [
            f"ARKLINE_{str(problem['loc'][0]).upper()}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
        raise UsageRefused("; ".join(problems)) from error


@contextmanager
def session(settings: Settings) -> Iterator[Session]:
    with connect(settings, CONNECT_SECONDS) as connected:
        yield connected


def archive(settings: Settings) -> Archive:
    """The SQL archive, opened at the first search; None if its file does not exist yet."""

    def open_archive() -> SqlInventory | None:
        if not settings.inventory_url and not (settings.home / "inventory.sqlite").exists():
            return None
        return inventory(settings)

    return open_archive


def inventory(settings: Settings) -> SqlInventory:
    from pipeline.inventory.sql import open_inventory

    return open_inventory(settings.inventory)


def existing_inventory(settings: Settings) -> SqlInventory:
    """The inventory for reading: its file is not created."""
    file = settings.home / "inventory.sqlite"
    if not settings.inventory_url and not file.exists():
        raise UsageRefused(
            f"there is no inventory at {file.absolute()}: set ARKLINE_HOME or ARKLINE_INVENTORY_URL to the "
            "value of the workers; the inventory is created when the first job is processed"
        )
    return inventory(settings)


def storage(settings: Settings) -> Storage:
    from pipeline.storage.factory import open_storage

    return open_storage(settings)


def quiet_logs(debug: bool) -> None:
    """Hide the log lines of the task layer unless --debug is given: the command reports the result."""
    import structlog

    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.CRITICAL),
    )
