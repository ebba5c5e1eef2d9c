"""SQLAlchemy engines as the inventory needs them, and what their errors mean."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from pipeline.errors import UsageRefused

WRITING = "arkline_writing"
"""Execution option of a connection whose transaction will write."""

LOCK_WAIT = 30
"""Seconds to wait for another writer."""

_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SQLITE_OUT_OF_REACH = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}

_POSTGRESQL_OPTIONS: dict[str, Any] = {
    "application_name": "arkline",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # milliseconds; a server that vanished is noticed although nothing was refused
    "tcp_user_timeout": 60_000,
}


def create(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return _postgresql(url)


def _sqlite(url: URL) -> Engine:
    Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT}, pool_size=4, max_overflow=60)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: object) -> None:
        # The driver's own BEGIN comes too late and is never IMMEDIATE.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # A recorded version must survive a power cut: "completed" is said right after the commit.
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for a writer; one begun IMMEDIATE can.
        writing = connection.get_execution_options().get(WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        engine = create_engine(
            url, connect_args=_POSTGRESQL_OPTIONS, pool_size=4, max_overflow=60, pool_pre_ping=True
        )
    except ModuleNotFoundError as error:
        raise UsageRefused("PostgreSQL needs its driver: pip install 'arkline[postgresql]'") from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'")

    return engine


def may_pass(error: Exception) -> bool:
    """True if the same transaction may succeed in a moment.

    IntegrityError is among them: of two that enter the same new row, the later finds it on its second try.
    """
    if isinstance(error, IntegrityError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _primary_code(error.orig) in _SQLITE_BUSY
    return isinstance(error, OperationalError) or error.connection_invalidated


def out_of_reach(error: Exception) -> bool:
    """True if the database cannot be used now, for a reason that an operator may be mending."""
    return (
        isinstance(error, DBAPIError)
        and isinstance(error.orig, sqlite3.Error)
        and _primary_code(error.orig) in _SQLITE_OUT_OF_REACH
    )


def said_by(error: Exception) -> str:
    """The driver's first line; SQLAlchemy's own text would repeat the statement and its values."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    return said.strip().partition("\n")[0] or type(error).__name__


def _primary_code(error: sqlite3.Error) -> int:
    # an extended result code has its primary one in the lowest byte
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
