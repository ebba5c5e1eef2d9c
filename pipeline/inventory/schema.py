"""The revision of the database schema, and its upgrade to this release's revision."""

import sqlite3
import time

from sqlalchemy import Connection, Engine, inspect, text

from pipeline.inventory.engines import LOCK_WAIT, transaction
from pipeline.outcome import system

HEAD = "0009"
"""The newest revision in `migrations/versions`; repeated here so that a comparison does not load Alembic."""

PAUSE = 0.05
"""Seconds between two tries to enable write-ahead logging."""

_UPGRADE_LOCK = 0x61726B6C696E65
"""The number of a PostgreSQL advisory lock, unique in the database; it spells `arkline`."""


def revision(connection: Connection) -> str | None:
    """The revision of the database; None if the database is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    number = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return None if number is None else str(number)


def bring_up_to_date(engine: Engine, name: str) -> None:
    """Upgrade the schema unless it is current; of several processes one upgrades and the others wait.

    The upgrade is one transaction on both databases, so a crash leaves the old schema.
    """
    with transaction(engine, writing=False) as connection:
        if revision(connection) == HEAD:
            return
    if engine.dialect.name == "sqlite":
        _enable_write_ahead_log(engine)
    with transaction(engine, writing=True) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        if revision(connection) != HEAD:
            _upgrade(connection, name)


def _enable_write_ahead_log(engine: Engine) -> None:
    """Write-ahead logging, a property of the file: readers and the writer do not wait for each other.

    SQLite refuses this at once, without its busy timeout, while another process is writing.
    """
    deadline = time.monotonic() + LOCK_WAIT
    connection = engine.raw_connection()
    try:
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)
            else:
                return
    finally:
        connection.close()


def _upgrade(connection: Connection, name: str) -> None:
    # imported when it is needed: it takes longer to load than the rest of this package
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", "pipeline.inventory:migrations")
    config.attributes["connection"] = connection
    before = revision(connection)
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise system(
            f"the inventory {name} has the schema {before}, which this release does not know (its schema is "
            f"{HEAD}): use a release of arkline that is at least as new as the database"
        ) from error
