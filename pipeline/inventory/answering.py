"""A connection to PostgreSQL that does not wait for ever: libpq has no timeout for a server that hangs.

The kernel of such a server confirms what it is sent, so `tcp_user_timeout` and keepalives notice nothing.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.errors import ConnectionTimeout
from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError

ANSWER_TIMEOUT = 60.0
"""Seconds to wait for the next bytes of an answer; longer than a statement waits for a lock."""

PING_TIMEOUT = 10.0
"""Seconds to wait for the answer to what needs no time, as for a connection."""

R = TypeVar("R")


class Connection(psycopg.Connection[Any]):
    answer_timeout: float | None = ANSWER_TIMEOUT
    """In seconds; None while a statement may take as long as it needs."""

    def wait(self, gen: Generator[Any, Any, R], *given: Any, **named: Any) -> R:
        """Wait for an answer of the server; a timeout closes the connection, and raises OperationalError."""
        if self.answer_timeout is None:
            return super().wait(gen, *given, **named)
        try:
            return super().wait(_with_timeout(gen, self.answer_timeout), *given, **named)
        except _TimedOut:
            self.close()
            raise

    @contextmanager
    def answering_within(self, seconds: float | None) -> Iterator[None]:
        """Wait for each answer within the block this long; None: without a timeout."""
        timeout, self.answer_timeout = self.answer_timeout, seconds
        try:
            yield
        finally:
            self.answer_timeout = timeout


class _TimedOut(psycopg.OperationalError):
    pass


def listen(engine: Engine) -> None:
    """Have the engine's connections be of this kind, each tried before it is used again."""

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        return Connection.connect(*arguments, **options)

    @event.listens_for(engine, "checkout")
    def ping(connection: Any, record: object, proxy: object) -> None:
        # not by the pool's own ping, which would wait as long as for a statement
        try:
            with connection.answering_within(PING_TIMEOUT):
                engine.dialect.do_ping(connection)
        except _TimedOut as error:
            raise ConnectionTimeout(str(error)) from error
        except psycopg.OperationalError as error:
            raise InvalidatePoolError from error


def _with_timeout(answer: Generator[Any, Any, R], seconds: float) -> Generator[Any, Any, R]:
    """The same generator with a timeout: it raises _TimedOut if the socket is not ready for `seconds`."""
    heard = time.monotonic()
    try:
        awaited = next(answer)
        while True:
            ready = yield awaited
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > seconds:
                raise _TimedOut(f"the server has not answered for {seconds:.0f} s")
            awaited = answer.send(ready)
    except StopIteration as end:
        result: R = end.value
        return result
