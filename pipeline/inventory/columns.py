"""Types and kinds of columns in the tables of the inventory, and the values of a column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    Text,
    select,
    true,
)
from sqlalchemy.types import TypeDecorator

# PostgreSQL cannot store NUL; half of a surrogate pair is not a character
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Utc(TypeDecorator[datetime]):
    """A point in time in UTC, regardless of how the database handles time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Prose(TypeDecorator[str]):
    """Text written by people. Characters that the database cannot store are replaced, because they must not
    prevent the recording of a stored version."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else _UNSTORABLE.sub("\ufffd", value)


def key_column() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)


def prose_column(name: str) -> Column[str]:
    return Column(name, Prose, nullable=False, default="")


def time_column(name: str) -> Column[datetime]:
    return Column(name, Utc, nullable=False)


def of_column(table: str, *, index: bool = False, unique: bool = False) -> Column[int]:
    return Column(
        f"{table.removesuffix('s')}_id", ForeignKey(f"{table}.id"), nullable=False, index=index, unique=unique
    )


def distinct_values(
    connection: Connection, column: ColumnElement[str], where: ColumnElement[bool] | None = None
) -> Iterator[str]:
    """The values of a column; the index is asked once for each value, and no other row is read."""
    # no minimum: without fresh statistics, PostgreSQL would read all rows of a new value
    query = select(column).where(true() if where is None else where).order_by(column).limit(1)
    value: str | None = connection.scalar(query)
    while value is not None:
        yield value
        value = connection.scalar(query.where(column > value))
