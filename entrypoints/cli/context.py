"""What a command opens: its settings, a session, the clients; each only when it is needed."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from pydantic import ValidationError

from operations.archive import Archive
from pipeline.errors import UsageRefused
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from pipeline.storage.factory import open_storage
from zkstate.session import Session, connect

PATIENCE = 5.0
"""Seconds to wait for the first answer of ZooKeeper."""


def settings() -> Settings:
    """The settings of the environment; UsageRefused names the variable that cannot be read."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"ARKLINE_{str(each['loc'][0]).upper()}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise UsageRefused("; ".join(wrong)) from error


@contextmanager
def session(found: Settings) -> Iterator[Session]:
    with connect(found, PATIENCE) as opened:
        yield opened


def archive(found: Settings) -> Archive:
    """The SQL archive, opened when something is looked for in it; none if its file was never made."""

    def open_it() -> SqlInventory | None:
        if not found.inventory_url and not (found.home / "inventory.sqlite").exists():
            return None
        return inventory(found)

    return open_it


def inventory(found: Settings) -> SqlInventory:
    return open_inventory(found.inventory)


def kept_inventory(found: Settings) -> SqlInventory:
    """The inventory, for who only looks: a file that is not there is not made."""
    file = found.home / "inventory.sqlite"
    if not found.inventory_url and not file.exists():
        raise UsageRefused(
            f"there is no inventory at {file.absolute()}: set ARKLINE_HOME or ARKLINE_INVENTORY_URL to what "
            "the workers have; it is made when the first job is processed"
        )
    return inventory(found)


def storage(found: Settings) -> Storage:
    return open_storage(found)


def quiet_logs(debug: bool) -> None:
    """Keep the log lines of Celery's side off the screen: the command says itself what happened."""
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.CRITICAL),
    )
