"""Statements in the dialects of both databases."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
Row = Mapping[str, Any]
Insert = sqlite.Insert | postgresql.Insert

NAMES_AT_A_TIME = 500
"""Values of one IN list; all SQLite builds allow 999 parameters."""


def insert(connection: Connection, table: Table) -> Insert:
    """An INSERT that supports ON CONFLICT."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert the rows that violate no unique constraint."""
    if rows:
        connection.execute(insert(connection, table).on_conflict_do_nothing(), list(rows))


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(things)
    while portion := list(islice(rest, size)):
        yield portion
