"""One SQL database, the same for every process: lazy engines, and transactions repeated after passing faults.

Rule: an engine belongs to the process that made it. A forked child makes its own and leaves the parent's
connections alone: closing them here would end the parent's sessions and, with SQLite, drop its locks.
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
"""Seconds before the second try; doubles up to LONGEST_PAUSE."""
LONGEST_PAUSE = 2.0
PATIENCE = 30.0
"""Seconds after which no further try is begun: the job's own tries, minutes apart, go on from there."""

_guard = threading.Lock()
_engines: dict[URL, Engine] = {}
_inherited: list[Engine] = []


def _forget_inherited() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may have held the old one when it forked
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
            raise UsageRefused("the inventory needs a file that every worker sees: sqlite:////folder/file")
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise UsageRefused(f"the inventory is kept in sqlite or postgresql; {other} is neither")


class Database:
    """Runs one transaction at a time for its caller; safe to share between threads, cheap to make."""

    def __init__(self, url: str, tries: int = TRIES) -> None:
        self._url = _parse(url)
        self._tries = tries
        self.name = self._url.render_as_string(hide_password=True)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction; run it again after a deadlock, a lock or a lost connection.

        A lost connection may have lost only the answer to the commit, so `work` must be idempotent.
        """
        return self._persevere(work, writing=True)

    def read(self, work: Callable[[Connection], T]) -> T:
        return self._persevere(work, writing=False)

    def close(self) -> None:
        """Close this process's connections to it; the next use opens new ones."""
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

    def _persevere(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        started = time.monotonic()
        pause = FIRST_PAUSE
        for tries_left in reversed(range(self._tries)):
            try:
                return self._once(work, writing=writing)
            except (DBAPIError, UnicodeEncodeError) as error:
                late = time.monotonic() - started > PATIENCE
                if not engines.may_pass(error) or not tries_left or late:
                    raise self._failure(error) from error
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads contenders, no secret
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")

    def _failure(self, error: DBAPIError | UnicodeEncodeError) -> StepFailed:
        said = engines.said_by(error)
        match error:
            case DataError() | UnicodeEncodeError():
                return content(f"a name or value of this object cannot be kept in the inventory: {said}")
            case IntegrityError():
                return system(f"the inventory {self.name} contradicts what is to be entered: {said}")
            case _ if engines.may_pass(error) or engines.out_of_reach(error):
                return transient(f"the inventory {self.name} does not answer: {said}")
            case _:
                return system(f"the inventory {self.name} refused: {said}")
