"""The SQL database shared by all processes: lazy engines, and retried transactions.

Rule: an engine belongs to the process that created it. A forked child creates its own engine and leaves the
parent's connections open: closing them would end the parent's sessions and, with SQLite, release its locks.

An SQLite file that is replaced or deleted stays open, and accepts entries that nobody will ever read. So
the file at the path is compared with the open one before and after every commit.
"""

import logging
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Executable, RowMapping, Select, exc, make_url, select
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError

from pipeline import causes
from pipeline.deployment import Deployment, Expected, absent, check_marker, outdated
from pipeline.errors import UsageRefused
from pipeline.inventory.engine import (
    first_line,
    is_silent,
    is_transient,
    is_unreachable,
    new_engine,
    transaction,
)
from pipeline.inventory.schema import bring_up_to_date, revision
from pipeline.inventory.search import index
from pipeline.inventory.silence import Silence
from pipeline.inventory.tables import deployments
from pipeline.outcome import Service, ServiceDown, StepFailed, content, fault_of, system, transient

_log = logging.getLogger(__name__)

T = TypeVar("T")

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
_silences: defaultdict[URL, Silence] = defaultdict(Silence)


def _forget_inherited() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may have held the old lock during the fork
    _inherited.extend(_engines.values())
    _engines.clear()
    _silences.clear()


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
    `expected`, the database is created on first use, unless `create` is false: it must then exist.
    """

    def __init__(
        self, url: str, tries: int = TRIES, expected: Expected | None = None, *, create: bool = True
    ) -> None:
        self._url = _parse(url)
        self._tries = tries
        self._expected = expected
        self._creates = create and expected is None
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
            self._check_silence()  # what waited for the guard need not wait for the same again
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
        if not self._creates and sqlite and file is None:
            raise absent(Service.INVENTORY, self.name)
        engine = new_engine(self._url, create=self._creates)
        try:
            if not self._creates:
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

    @property
    def _silence(self) -> Silence:
        """Not an attribute: a forked child needs one whose lock no thread of its parent can hold."""
        return _silences[self._url]

    def _check_silence(self) -> None:
        if self._silence.holds():
            raise transient(f"the inventory {self.name} cannot be used: it did not answer a moment ago")

    def _once(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        self._check_silence()
        opened = self._opened()
        with transaction(opened.engine, writing=writing) as connection:
            self._silence.end()
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
                    self._once(index.replace, writing=True)
                return self._once(work, writing=writing)
            except (DBAPIError, UnicodeEncodeError) as error:
                if is_silent(error):
                    self._silence.begin()
                    raise self._failure(error) from error
                index_lost = index.is_lost(error)
                late = time.monotonic() - started > RETRY_SECONDS
                if not (is_transient(error) or index_lost) or not tries_left or late:
                    raise self._failure(error) from error
            except exc.TimeoutError as error:
                message = f"the inventory {self.name} does not keep up: all connections are in use"
                raise transient(message) from error
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
