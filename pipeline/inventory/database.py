"""The SQL database, shared by all processes: lazy engines, and transactions that are retried.

Rule: an engine belongs to the process that created it. A forked child creates its own engine and leaves the
parent's connections open: closing them would end the parent's sessions and, with SQLite, release its locks.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError

from pipeline.errors import UsageRefused
from pipeline.inventory import engines
from pipeline.inventory.schema import bring_up_to_date
from pipeline.outcome import StepFailed, content, system, transient

T = TypeVar("T")

TRIES = 8
FIRST_PAUSE = 0.05
"""Seconds before the second try; the pause doubles up to LONGEST_PAUSE."""
LONGEST_PAUSE = 2.0
RETRY_SECONDS = 30.0
"""Seconds after which no further try starts; the job itself tries again minutes later."""

_guard = threading.Lock()
_engines: dict[URL, Engine] = {}
_inherited: list[Engine] = []


def _forget_inherited() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may hold the old lock during the fork
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
    """Runs transactions; safe to share between threads, cheap to create."""

    def __init__(self, url: str, tries: int = TRIES) -> None:
        self._url = _parse(url)
        self._tries = tries
        self.name = self._url.render_as_string(hide_password=True)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction; repeat it after a deadlock, a lock timeout or a lost connection.

        The commit may have succeeded before the connection was lost, so `work` must be idempotent.
        """
        return self._retry(work, writing=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._retry(work, writing=False)

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        with _guard:
            engine = _engines.pop(self._url, None)
        if engine is not None:
            engine.dispose()

    def _engine(self) -> Engine:
        with _guard:
            engine = _engines.get(self._url)
            if engine is None:
                engine = engines.create(self._url)
                try:
                    bring_up_to_date(engine, self.name)
                except BaseException:
                    engine.dispose()
                    raise
                _engines[self._url] = engine
            return engine

    def _once(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        with (
            self._engine().connect().execution_options(**{engines.WRITING: writing}) as connection,
            connection.begin(),
        ):
            return work(connection)

    def _retry(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        started = time.monotonic()
        pause = FIRST_PAUSE
        for tries_left in reversed(range(self._tries)):
            try:
                return self._once(work, writing=writing)
            except (DBAPIError, UnicodeEncodeError) as error:
                late = time.monotonic() - started > RETRY_SECONDS
                if not engines.is_transient(error) or not tries_left or late:
                    raise self._failure(error) from error
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads contenders, no secret
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")

    def _failure(self, error: DBAPIError | UnicodeEncodeError) -> StepFailed:
        reason = engines.first_line(error)
        match error:
            case DataError() | UnicodeEncodeError():
                return content(f"the inventory cannot store a name or value of this object: {reason}")
            case IntegrityError():
                return system(f"the entry conflicts with the inventory {self.name}: {reason}")
            case _ if engines.is_transient(error) or engines.is_unreachable(error):
                return transient(f"the inventory {self.name} does not answer: {reason}")
            case _:
                return system(f"the inventory {self.name} refused the request: {reason}")
