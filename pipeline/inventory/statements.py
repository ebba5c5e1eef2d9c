"""Statements in the dialects of both databases; only the dialect of the own database is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, Connection, Table
from sqlalchemy.sql.dml import ReturningInsert

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insert = sqlite.Insert | postgresql.Insert

T = TypeVar("T")
Row = Mapping[str, Any]

NAMES_AT_A_TIME = 500
"""Values of one IN list; all SQLite builds allow 999 parameters."""


def insert(connection: Connection, table: Table) -> Insert:
    """An INSERT that supports ON CONFLICT."""
    return _insert(connection.dialect.name, table)


def _insert(dialect: str, table: Table) -> Insert:
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


@cache
def _insert_new(dialect: str, table: Table) -> Insert:
    return _insert(dialect, table).on_conflict_do_nothing()


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert the rows that violate no unique constraint."""
    if rows:
        connection.execute(_insert_new(connection.dialect.name, table), list(rows))


@cache
def _insert_if_new(dialect: str, column: Column[T]) -> ReturningInsert[tuple[T]]:
    return _insert_new(dialect, column.table).returning(column)


def insert_if_new(connection: Connection, column: Column[T], row: Row) -> T | None:
    """The row's value of the column, if the row was inserted; None if it violates a unique constraint."""
    return connection.execute(_insert_if_new(connection.dialect.name, column), row).scalar_one_or_none()


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(things)
    while portion := list(islice(rest, size)):
        yield portion
