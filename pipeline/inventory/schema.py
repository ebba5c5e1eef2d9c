"""The schema of the inventory, and how an earlier one is upgraded: it only grows (decision 102)."""

import logging
import sqlite3
import time
from typing import NamedTuple

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, inspect, select, text
from sqlalchemy.schema import CreateColumn

from pipeline.inventory import scheduled
from pipeline.inventory.engine import LOCK_WAIT, transaction, without_timeout
from pipeline.inventory.search import index
from pipeline.inventory.tables import metadata
from pipeline.outcome import system

_log = logging.getLogger(__name__)

SCHEMA = "0019"
"""The schema of this release; 0.3.0 had 0011, 0.2.1 0010, 0.2.0 0002, 0.1.0 0001; every change has one."""

OLDEST = "0011"
"""The oldest schema whose releases may use an inventory of this release, beside it or again after it."""

_OLDEST = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""The table with OLDEST: a release refuses an inventory whose number here is higher than that of its schema.
Releases up to 0.2.1 wrote it with Alembic; up to 0.3.0 it had the schema's own number."""

_SCHEMAS = Table("inv_schema", MetaData(), Column("number", String(32), primary_key=True))
"""The table with the schema's own number; absent up to 0.3.0."""

PAUSE = 0.05
"""Seconds between two tries to enable write-ahead logging."""

_UPGRADE_LOCK = 0x61726B6C696E65
"""The key of a PostgreSQL advisory lock, unique in the database; it spells `arkline`."""


class Revision(NamedTuple):
    """What an inventory says of its schema."""

    oldest: str
    """The oldest schema whose releases may use it."""
    number: str | None
    """Its own schema; None: an earlier release made it, and it is the oldest one."""

    @property
    def current(self) -> bool:
        """Whether this release can use it as it is: a later release may have added something."""
        return self.oldest <= SCHEMA <= (self.number or "")


def revision(connection: Connection) -> Revision | None:
    """What the database says of its schema; None if it is empty."""
    tables = inspect(connection)
    if not tables.has_table(_OLDEST.name):
        return None
    oldest = connection.scalar(select(_OLDEST.c.version_num))
    numbered = tables.has_table(_SCHEMAS.name)
    return Revision(oldest or "", connection.scalar(select(_SCHEMAS.c.number)) if numbered else None)


def bring_up_to_date(engine: Engine, name: str) -> None:
    """Upgrade the schema unless it is current; of several processes, one upgrades while the others wait.

    The upgrade is one transaction on both databases, so a crash leaves the old schema.
    """
    with transaction(engine, writing=False) as connection:
        if (known := revision(connection)) and known.current:
            return
    if engine.dialect.name == "sqlite":
        _enable_write_ahead_log(engine)
    with transaction(engine, writing=True) as connection, without_timeout(connection):
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        known = revision(connection)
        if known is None and engine.dialect.name == "postgresql":
            _check_encoding(connection, name)
        if not (known and known.current):
            _upgrade(connection, name, known)


def _enable_write_ahead_log(engine: Engine) -> None:
    """Enable write-ahead logging, a property of the file: readers and writer do not block each other.

    While another process is writing, SQLite refuses this immediately, without its busy timeout.
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


def _check_encoding(connection: Connection, name: str) -> None:
    """Any other encoding lacks characters of titles and file names, or does not check them."""
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise system(
            f"the inventory {name} has the encoding {encoding}: create its database with CREATE DATABASE ... "
            "ENCODING 'UTF8' TEMPLATE template0"
        )


def _upgrade(connection: Connection, name: str, before: Revision | None) -> None:
    """Add the missing tables, columns and indexes."""
    if before is not None and before.oldest > SCHEMA:
        raise system(
            f"the inventory {name} has the schema {before.oldest}, which this release does not know (its "
            f"schema is {SCHEMA}): use a release of arkline that is at least as new as the database"
        )
    if before is not None and before.oldest < OLDEST:
        _log.warning(
            "the inventory %s gets the schema %s: releases with a schema before %s, as %s, refuse it from "
            "now on, and only a backup leads back to them",
            *(name, SCHEMA, OLDEST, before.oldest),
        )
    present = inspect(connection)
    for table in metadata.sorted_tables:
        if present.has_table(table.name):
            columns = {column["name"] for column in present.get_columns(table.name)}
            for column in table.columns:
                if column.name not in columns:
                    written = CreateColumn(column).compile(dialect=connection.dialect)
                    connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {written}"))
            for one in table.indexes:
                one.create(connection, checkfirst=True)
    metadata.create_all(connection)
    index.create(connection)
    if before is not None:
        scheduled.enter_missing(connection)
    for table, number in ((_OLDEST, OLDEST), (_SCHEMAS, SCHEMA)):
        table.create(connection, checkfirst=True)
        connection.execute(table.delete())
        connection.execute(table.insert().values({table.c[0]: number}))
