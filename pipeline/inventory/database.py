"""The SQL database shared by all processes: lazy engines, the schema, and retried transactions.

Rule: an engine belongs to the process that created it. A forked child creates its own engine and leaves the
parent's connections open: closing them would end the parent's sessions and, with SQLite, release its locks.

An SQLite file that is replaced or deleted stays open, and accepts entries that nobody will ever read. So
the file at the path is compared with the open one before and after every commit.
"""

import json
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Executable,
    MetaData,
    RowMapping,
    Select,
    String,
    Table,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.schema import CreateColumn

from pipeline import causes
from pipeline.deployment import Deployment, Expected, absent, check_marker, outdated
from pipeline.errors import UsageRefused
from pipeline.inventory import search_index
from pipeline.inventory.tables import deployments, metadata
from pipeline.outcome import Service, ServiceDown, StepFailed, content, fault_of, system, transient
from pipeline.records import Record

_log = logging.getLogger(__name__)

LOCK_WAIT = 30
"""Seconds to wait for another writer's lock."""
_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OUTAGES = ("FULL", "IOERR", "CANTOPEN", "READONLY", "PERM")
_SQLITE_UNREACHABLE = {getattr(sqlite3, f"SQLITE_{name}") for name in _OUTAGES}
_POSTGRESQL_UNUSABLE = {"25006", "42501", "53100"}
"""SQLSTATE: read-only transaction, insufficient privilege, disk full: every transaction would fail."""
_POSTGRESQL_OPTIONS: dict[str, Any] = {
    "application_name": "arkline",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # milliseconds until a server that vanished silently is detected
    "tcp_user_timeout": 60_000,
}


def new_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    return _postgresql(url)


def _as_json(value: Any) -> str:
    """Serialize to JSON; a Record serializes itself, because a report may have 100,000 jobs."""
    return value.model_dump_json() if isinstance(value, Record) else json.dumps(value)


_POOL: dict[str, Any] = {"json_serializer": _as_json, "pool_size": 4, "max_overflow": 60}


def _sqlite(url: URL) -> Engine:
    Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT}, **_POOL)

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
        return create_engine(url, connect_args=_POSTGRESQL_OPTIONS, pool_pre_ping=True, **_POOL)
    except ModuleNotFoundError as error:
        raise UsageRefused("PostgreSQL needs its driver: pip install 'arkline[postgresql]'") from error


@contextmanager
def transaction(engine: Engine, *, writing: bool) -> Iterator[Connection]:
    """A transaction, committed at the end of the block.

    It begins here and not in a listener: with one, SQLAlchemy would look for listeners at every statement.
    """
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(_first_statement(engine.dialect.name, writing))
        yield connection


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


T = TypeVar("T")

SCHEMA = "0018"
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
    with transaction(engine, writing=True) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        if not ((known := revision(connection)) and known.current):
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


def _upgrade(connection: Connection, name: str, before: Revision | None) -> None:
    """Add the missing tables, columns and indexes; a schema only grows (decision 102)."""
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
            for index in table.indexes:
                index.create(connection, checkfirst=True)
    metadata.create_all(connection)
    search_index.create(connection)
    for table, number in ((_OLDEST, OLDEST), (_SCHEMAS, SCHEMA)):
        table.create(connection, checkfirst=True)
        connection.execute(table.delete())
        connection.execute(table.insert().values({table.c[0]: number}))


_DEPLOYMENT = select(deployments.c.id, deployments.c.created, deployments.c.mark)

_ID_AND_MARK = "SELECT id, mark FROM deployment"
"""As text, because every transaction runs it and the statement above takes three times as long."""


def read_deployment(connection: Connection) -> Deployment | None:
    row = connection.execute(_DEPLOYMENT).one_or_none()
    return None if row is None else Deployment(id=row.id, created=row.created, mark=row.mark)


TRIES = 8
FIRST_PAUSE = 0.05
"""Seconds before the second try; the pause doubles up to LONGEST_PAUSE."""
LONGEST_PAUSE = 2.0
RETRY_SECONDS = 30.0
"""Seconds after which no further try starts; the job itself is retried minutes later."""

FileId = tuple[int, int]
"""Device and inode of a file."""


@dataclass
class _Opened:
    engine: Engine
    file: FileId | None
    """The SQLite file that the engine has open; None for a server."""
    mark: int = 0
    """The highest mark read so far: a lower one belongs to an older copy."""


_guard = threading.Lock()
_engines: dict[URL, _Opened] = {}
_inherited: list[_Opened] = []


def _forget_inherited() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may have held the old lock during the fork
    _inherited.extend(_engines.values())
    _engines.clear()


os.register_at_fork(after_in_child=_forget_inherited)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageRefused(
            "ARKLINE_INVENTORY_URL is not an SQLAlchemy URL; "
            "write sqlite:////folder/file or postgresql://user:password@host/database"
        ) from error
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed
        case "sqlite":
            raise UsageRefused("the inventory needs a file that all workers share: sqlite:////folder/file")
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise UsageRefused(f"the inventory can be in sqlite or postgresql, not in {other}")


class Database:
    """Runs transactions; thread-safe, cheap to create.

    With `expected`, the database must exist and belong to that deployment: ServiceDown otherwise. Without
    `expected`, the database is created on first use.
    """

    def __init__(self, url: str, tries: int = TRIES, expected: Expected | None = None) -> None:
        self._url = _parse(url)
        self._tries = tries
        self._expected = expected
        self.name = self._url.render_as_string(hide_password=True)

    @fault_of(Service.INVENTORY)
    def exists(self) -> bool:
        """Whether the database has tables; nothing is created. ServiceDown if it does not answer."""
        if self._url.get_backend_name() == "sqlite":
            file = Path(self._url.database or "")
            return self._file() is not None and file.stat().st_size > 0
        engine = new_engine(self._url)
        try:
            with transaction(engine, writing=False) as connection:
                return revision(connection) is not None
        except DBAPIError as error:
            raise self._failure(error) from error
        finally:
            engine.dispose()

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction; repeat it after a deadlock, a lock timeout or a lost connection.

        The commit may have succeeded before the connection was lost, so `work` must be idempotent.
        """
        return self._retry(work, writing=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._retry(work, writing=False)

    def rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        return self.read(lambda connection: connection.execute(query).mappings().all())

    def run(self, statement: Executable) -> None:
        self.write(lambda connection: connection.execute(statement))

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        with _guard:
            opened = _engines.pop(self._url, None)
        if opened is not None:
            opened.engine.dispose()

    def _opened(self) -> _Opened:
        with _guard:
            file = self._file()
            opened = _engines.get(self._url)
            if opened is not None and opened.file != file:
                _engines.pop(self._url).engine.dispose()
                if self._expected is not None:
                    raise self._replaced()
                opened = None
            if opened is None:
                opened = self._open(file)
                _engines[self._url] = opened
            return opened

    def _open(self, file: FileId | None) -> _Opened:
        sqlite = self._url.get_backend_name() == "sqlite"
        if self._expected is not None and sqlite and file is None:
            raise absent(Service.INVENTORY, self.name)
        engine = new_engine(self._url)
        try:
            if self._expected is not None:
                self._check_tables(engine)
            bring_up_to_date(engine, self.name)
        except BaseException:
            engine.dispose()
            raise
        return _Opened(engine, self._file())

    def _check_tables(self, engine: Engine) -> None:
        with transaction(engine, writing=False) as connection:
            if revision(connection) is None:
                raise absent(Service.INVENTORY, self.name)

    def _file(self) -> FileId | None:
        """The file now at the path; None if there is none, or if the database is on a server."""
        if self._url.get_backend_name() != "sqlite":
            return None
        try:
            stat = os.stat(self._url.database or "")  # noqa: PTH116 - called three times per transaction
        except (FileNotFoundError, NotADirectoryError):
            return None
        return stat.st_dev, stat.st_ino

    def _replaced(self) -> ServiceDown:
        return ServiceDown(
            Service.INVENTORY,
            f"the inventory {self.name} was replaced, moved or deleted while it was in use: put the file "
            "back, or restore the newest copy",
        )

    def _check_file(self, opened: _Opened) -> None:
        """ServiceDown if the path no longer leads to the open file: nobody would ever read the entry."""
        if self._file() != opened.file:
            raise self._replaced()

    def _once(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        opened = self._opened()
        with transaction(opened.engine, writing=writing) as connection:
            self._check_deployment(connection, opened)
            result = work(connection)
            self._check_file(opened)
        self._check_file(opened)
        return result

    def _check_deployment(self, connection: Connection, opened: _Opened) -> None:
        if self._expected is None:
            return
        expected = self._expected()
        row = connection.exec_driver_sql(_ID_AND_MARK).one_or_none()
        if row is None or row.id != expected:
            check_marker(Service.INVENTORY, self.name, read_deployment(connection), expected)
        elif row.mark < opened.mark:
            evidence = f"its mark is {row.mark}, but {opened.mark} was seen"
            raise outdated(Service.INVENTORY, self.name, evidence)
        else:
            opened.mark = row.mark

    @fault_of(Service.INVENTORY)
    def _retry(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        started = time.monotonic()
        pause, index_lost = FIRST_PAUSE, False
        for tries_left in reversed(range(self._tries)):
            try:
                if index_lost:
                    _log.warning("the index of objects is damaged or absent: objects are indexed again")
                    self._once(search_index.replace, writing=True)
                return self._once(work, writing=writing)
            except (DBAPIError, UnicodeEncodeError) as error:
                index_lost = search_index.is_lost(error)
                late = time.monotonic() - started > RETRY_SECONDS
                if not (is_transient(error) or index_lost) or not tries_left or late:
                    raise self._failure(error) from error
            except OSError as error:  # SQLite's folder
                raise transient(f"the inventory {self.name} cannot be used: {error}") from error
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads contenders, no secret
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")

    def _failure(self, error: DBAPIError | UnicodeEncodeError) -> StepFailed:
        reason = first_line(error)
        match error:
            case DataError() | UnicodeEncodeError():
                return content(f"the inventory cannot store a name or value of this object: {reason}")
            case IntegrityError():
                message = f"the entry conflicts with the inventory {self.name}: {reason}"
            case _ if is_transient(error) or is_unreachable(error):
                return transient(f"the inventory {self.name} cannot be used: {reason}")
            case _:
                message = f"the inventory {self.name} refused the request: {reason}"
        return system(message).because(causes.SERVICE_REFUSED(service=Service.INVENTORY))
