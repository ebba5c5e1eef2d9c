"""What both databases are asked in their own dialects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
Row = Mapping[str, Any]
Insert = sqlite.Insert | postgresql.Insert

NAMES_AT_A_TIME = 500
"""Values of one IN list; SQLite's builds allow 999 parameters at least."""


def insert(connection: Connection, table: Table) -> Insert:
    """An INSERT that knows ON CONFLICT."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert those rows that no unique constraint refuses."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), list(rows))


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(things)
    while portion := list(islice(rest, size)):
        yield portion
