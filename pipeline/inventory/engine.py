"""Engines and transactions of both SQL databases, and what their errors mean."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from pipeline.errors import UsageRefused
from pipeline.file_system import make_synced, sync
from pipeline.records import Record

LOCK_WAIT = 30
"""Seconds to wait for another writer's lock."""
_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OUTAGES = ("FULL", "IOERR", "CANTOPEN", "READONLY", "PERM")
_SQLITE_UNREACHABLE = {getattr(sqlite3, f"SQLITE_{name}") for name in _OUTAGES}
_POSTGRESQL_UNUSABLE = {"25006", "42501", "53100"}
"""SQLSTATE: read-only transaction, insufficient privilege, disk full: every transaction would fail."""
_POSTGRESQL_OPTIONS: dict[str, Any] = {
    "application_name": "arkline",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # milliseconds until a server that vanished silently is detected
    "tcp_user_timeout": 60_000,
}


def new_engine(url: URL, *, create: bool = True) -> Engine:
    """`create`: create the file of an SQLite database if it is missing."""
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, create=create)
    return _postgresql(url)


def _as_json(value: Any) -> str:
    """Serialize to JSON; a Record serializes itself, because a report may have 100,000 jobs."""
    return value.model_dump_json() if isinstance(value, Record) else json.dumps(value)


_POOL: dict[str, Any] = {"json_serializer": _as_json, "pool_size": 4, "max_overflow": 60}


def _sqlite(url: URL, *, create: bool) -> Engine:
    file = Path(url.database or "")
    if create and not file.exists():
        make_synced(file.parent)
        file.touch(0o644)
        sync(file.parent)
    # if the file is away, SQLite would create an empty one, and then delete the log of the file that is away
    existing = url.set(database=f"file:{quote(str(file))}", query={**url.query, "mode": "rw", "uri": "true"})
    engine = create_engine(existing, connect_args={"timeout": LOCK_WAIT}, **_POOL)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: object) -> None:
        # The driver's own BEGIN comes too late, and is never IMMEDIATE.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # A recorded version must survive a power cut: the job completes right after the commit.
        connection.execute("PRAGMA synchronous = FULL")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        from pipeline.inventory import answering  # imported here: it needs the driver
    except ModuleNotFoundError as error:
        raise UsageRefused("PostgreSQL needs its driver: pip install 'arkline[postgresql]'") from error
    engine = create_engine(url, connect_args=_POSTGRESQL_OPTIONS, **_POOL)

    answering.listen(engine)

    @event.listens_for(engine, "connect")
    def prepare_nothing_behind_a_pool(connection: Any, record: object) -> None:
        # A pool such as PgBouncer invents the number of the process. It may run each transaction in another
        # one, which has no prepared statement of this name, or that of another client.
        (process,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.rollback()
        if process != connection.info.backend_pid:
            connection.prepare_threshold = None

    return engine


@contextmanager
def transaction(engine: Engine, *, writing: bool) -> Iterator[Connection]:
    """A transaction, committed at the end of the block.

    It begins here and not in a listener: with one, SQLAlchemy would look for listeners at every statement.
    """
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(_first_statement(engine.dialect.name, writing))
        yield connection


@contextmanager
def without_timeout(connection: Connection) -> Iterator[None]:
    """Statements in the block have no timeout: creating an index may take minutes."""
    if connection.dialect.name == "sqlite":  # which answers in this process
        yield
        return
    driver: Any = connection.connection.driver_connection
    with driver.answering_within(None):
        yield


def _first_statement(dialect: str, writing: bool) -> str:
    if dialect == "sqlite":
        # a transaction that reads before it writes cannot wait for another writer, unless it is IMMEDIATE
        return "BEGIN IMMEDIATE" if writing else "BEGIN"
    return f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'"


def is_transient(error: Exception) -> bool:
    """True if the same transaction may succeed in a moment.

    This includes IntegrityError: if two transactions insert the same row, the second finds it when retried.
    """
    if isinstance(error, IntegrityError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _primary_code(error.orig) in _SQLITE_BUSY
    return isinstance(error, OperationalError) or error.connection_invalidated


def is_silent(error: Exception) -> bool:
    """True if the server did not even answer a ping, or no connection was made within its timeout."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    from psycopg.errors import ConnectionTimeout  # imported here: sites with SQLite need no driver

    return isinstance(error.orig, ConnectionTimeout)


def is_unreachable(error: Exception) -> bool:
    """True if the database cannot be used now, for a reason that an operator may be fixing."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _primary_code(error.orig) in _SQLITE_UNREACHABLE
    return getattr(error.orig, "sqlstate", None) in _POSTGRESQL_UNUSABLE


def first_line(error: Exception) -> str:
    """The first line of the driver's message; SQLAlchemy's message has the statement and its values."""
    message = str(error.orig if isinstance(error, DBAPIError) else error)
    return message.strip().partition("\n")[0] or type(error).__name__


def _primary_code(error: sqlite3.Error) -> int:
    # the lowest byte of an extended result code is the primary code
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
