"""The index of all objects by their tokens: FTS5 in SQLite, an array with a GIN index in PostgreSQL.

Rule: a row has the tokens of all versions of an object, whatever their order. A version is entered with the
transaction that records it, and gets the number of the index. Versions with a lower number, which were
entered by a release without this index or rebuilt from storage, are entered by scheduled work,
`enter_portion`. An index that is damaged or absent is replaced by an empty one with the next number.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    distinct,
    func,
    literal,
    literal_column,
    not_,
    select,
    text,
    type_coerce,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeDecorator, TypeEngine

from pipeline.inventory import tables
from pipeline.inventory.search.tokens import Findable, tokens_of
from pipeline.inventory.tables import (
    collections,
    dublin_kernels,
    files,
    ingests,
    insert_new,
    local_ids,
    memberships,
    objects,
    versions,
)

DEPOSITOR_LENGTH = 600
"""Characters; no principal's identity is longer, and PostgreSQL cannot have longer ones in an index."""


class _Tokens(TypeDecorator[frozenset[str]]):
    """Words without spaces: as one text in SQLite, whose index divides it at spaces; else as an array."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Text() if dialect.name == "sqlite" else ARRAY(Text)

    def process_bind_param(self, value: frozenset[str] | None, dialect: Dialect) -> Any:
        tokens = sorted(value or ())
        return " ".join(tokens) if dialect.name == "sqlite" else tokens

    def process_result_value(self, value: Any, dialect: Dialect) -> frozenset[str]:
        return frozenset(value.split(" ") if dialect.name == "sqlite" else value)


_searches = Table(
    "inv_search",
    MetaData(),
    # the object's key; SQLite gives this name to the key of its index
    Column("rowid", BigInteger, primary_key=True, autoincrement=False),
    Column("tokens", _Tokens, nullable=False),
)

# the index of objects by their tokens; one row
indexes = Table(
    "inv_index",
    tables.metadata,
    # with the number 1
    Column("row", Integer, primary_key=True, autoincrement=False),
    # rises when the index is made anew
    Column("number", Integer, nullable=False),
    # the rules by which texts became tokens
    Column("rules", Integer, nullable=False),
)

# no separators but spaces; no case is changed. The positions of tokens are not kept
_PUNCTUATION = "".join(chr(code) for code in range(33, 127) if not chr(code).isalnum()).replace("'", "''")
_SQLITE = f"""CREATE VIRTUAL TABLE IF NOT EXISTS inv_search USING fts5(tokens, detail=none, columnsize=0,
tokenize='ascii tokenchars ''{_PUNCTUATION.replace("'", "''")}''')"""

_POSTGRESQL = (
    # tokens are kept apart from the rows: a query reads the index, and the keys
    "ALTER TABLE inv_search SET (toast_tuple_target = 256)",
    # kilobytes: every query reads the whole list of pending entries
    "CREATE INDEX IF NOT EXISTS ix_inv_search_tokens ON inv_search USING gin (tokens) "
    "WITH (gin_pending_list_limit = 256)",
)


RULES = 1
"""Of tokens and their index; other ones get another number, and the schema, too."""


def create(connection: Connection) -> None:
    """Create the index unless it is there; one of earlier rules gets the tokens of these rules, too."""
    if connection.dialect.name == "sqlite":
        connection.execute(text(_SQLITE))
    else:
        _searches.create(connection, checkfirst=True)
        for statement in _POSTGRESQL:
            connection.execute(text(statement))
    insert_new(connection, indexes, [{"row": 1, "number": 1, "rules": RULES}])
    _next_number(connection, indexes.c.rules < RULES)


def replace(connection: Connection) -> None:
    """Create an empty index in place of one that is damaged or absent."""
    connection.execute(text("DROP TABLE IF EXISTS inv_search"))
    create(connection)
    _next_number(connection, indexes.c.rules == RULES)


def _next_number(connection: Connection, condition: ColumnElement[bool]) -> None:
    connection.execute(update(indexes).where(condition).values(number=indexes.c.number + 1, rules=RULES))


def is_lost(error: Exception) -> bool:
    """Whether a statement failed because the index is damaged or absent."""
    original = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(original, sqlite3.Error):
        damaged = original.sqlite_errorcode == sqlite3.SQLITE_CORRUPT_VTAB
        return damaged or "no such table: inv_search" in str(original)
    lost = getattr(original, "sqlstate", None) in ("42P01", "XX001", "XX002")  # undefined, corrupted
    return lost and "inv_search" in str(original)


def known_depositor(identity: str) -> str | None:
    return identity if 0 < len(identity) <= DEPOSITOR_LENGTH else None


def enter(connection: Connection, object_id: int, version: Findable) -> None:
    """Add the tokens of a version; the caller has locked the object."""
    new = frozenset(tokens_of(version))
    own = _searches.c.rowid == object_id
    before = connection.scalar(select(_searches.c.tokens).where(own))
    if before is None:
        connection.execute(_searches.insert(), {"rowid": object_id, "tokens": new})
    elif not new <= before:
        connection.execute(update(_searches).where(own).values(tokens=before | new))


PORTION = 100
"""Versions that scheduled work enters in one transaction, at most."""

FILES_OF_PORTION = 10_000
"""Files after which no further version is entered in the transaction."""


@dataclass(frozen=True)
class Unindexed:
    """A version that is not in the index."""

    id: int
    """The key of its ingest."""
    bid: str
    depositor: str | None


@dataclass(frozen=True)
class Indexing:
    """How many objects can be found while scheduled work enters the others."""

    indexed: int
    objects: int


_NUMBER = select(indexes.c.number).where(indexes.c.rules == RULES).scalar_subquery()
_UNINDEXED = ingests.c.index_number < _NUMBER

INDEXED = func.coalesce(_NUMBER, 0)
"""The number of a version that is in the index; 0 beside a release with other rules, which enters it, too."""


def unindexed(connection: Connection) -> tuple[Unindexed, ...]:
    """The first versions that are not in the index."""
    query = select(ingests.c.id, ingests.c.batch_id.label("bid"), ingests.c.depositor).where(_UNINDEXED)
    # in the order of their index, so that a portion reads its own rows only
    rows = connection.execute(query.order_by(ingests.c.index_number, ingests.c.id).limit(PORTION)).mappings()
    return tuple(Unindexed(**row) for row in rows)


def all_indexed(connection: Connection) -> bool:
    # in the order of the index, because PostgreSQL would look through all rows for one that is likely
    first = select(ingests.c.id).where(_UNINDEXED).order_by(ingests.c.index_number, ingests.c.id)
    return connection.scalar(first.limit(1)) is None


def indexing(connection: Connection) -> Indexing | None:
    """How far the scheduled work is, by a count of all objects; None if all of them are in the index."""
    if all_indexed(connection):
        return None
    left = connection.scalar(select(func.count(distinct(ingests.c.inv_object_id))).where(_UNINDEXED)) or 0
    total = connection.scalar(select(func.count()).select_from(objects)) or 0
    return Indexing(total - left, total)


def enter_portion(connection: Connection, portion: Sequence[Unindexed], depositors: Mapping[str, str]) -> int:
    """Enter the first of these versions; returns how many. `depositors`: batch -> identity, if known."""
    own = ingests.c.id.in_([version.id for version in portion])
    rows = connection.execute(
        select(ingests, versions.c.number, objects.c.ark)
        .join(versions, versions.c.id == ingests.c.inv_version_id)
        .join(objects, objects.c.id == ingests.c.inv_object_id)
        .where(own, _UNINDEXED)
        .order_by(ingests.c.id)
    ).all()
    keys = sorted({row.inv_object_id for row in rows})
    connection.execute(
        select(objects.c.id).where(objects.c.id.in_(keys)).order_by(objects.c.id).with_for_update()
    )
    entered, read = 0, 0
    for row in rows:
        depositor = row.depositor or known_depositor(depositors.get(row.batch_id, ""))
        version, number = _findable(connection, row, depositor)
        enter(connection, row.inv_object_id, version)
        done = update(ingests).where(ingests.c.id == row.id)
        connection.execute(done.values(depositor=depositor, index_number=INDEXED))
        entered, read = entered + 1, read + number
        if read > FILES_OF_PORTION:
            break
    return entered


NAME_AND_DIGESTS = (files.c.pathname, files.c.digest_value, files.c.landed_digest, files.c.source_digest)
"""The columns by which a file is found."""


def _findable(connection: Connection, row: Any, depositor: str | None) -> tuple[Findable, int]:
    """What is recorded of a version, and the number of its files."""
    of_version = row.inv_version_id
    described = connection.execute(
        select(dublin_kernels.c.element, dublin_kernels.c.value)
        .where(dublin_kernels.c.inv_version_id == of_version)
        .order_by(dublin_kernels.c.seq_num)
    ).all()
    stored = connection.execute(select(*NAME_AND_DIGESTS).where(files.c.inv_version_id == of_version)).all()
    members = (
        select(collections.c.ark)
        .join(memberships, memberships.c.inv_collection_id == collections.c.id)
        .where(memberships.c.inv_object_id == row.inv_object_id)
    )
    names = select(local_ids.c.local_id).where(local_ids.c.inv_object_ark == row.ark)
    findable = Findable(
        ark=row.ark,
        local_ids=tuple(connection.scalars(names)),
        erc=[(element, value) for element, value in described],
        texts=(*connection.scalars(members), *texts_of(row._asdict())),
        files=[(path, digests) for path, *digests in stored],
        profile=row.profile,
        depositor=depositor,
    )
    return findable, len(stored)


def texts_of(ingest: Mapping[str, Any]) -> Iterator[str]:
    """The texts in a row of inv_ingests by which its version is found."""
    return (ingest[name] for name in ("profile", "user_agent", "filename", "batch_id", "job_id"))


@dataclass(frozen=True)
class TokenQuery:
    """The tokens of the objects that are looked for."""

    all: tuple[str, ...]
    any: tuple[str, ...] = ()
    """At least one of these; empty: no such condition."""
    but: tuple[tuple[str, ...], ...] = ()
    """Not all tokens of any of these."""
    common: bool = False
    """Many of the objects may have the tokens."""


Condition = Callable[[ColumnElement[int]], ColumnElement[bool]]
"""What an object has to meet, given its key."""


NEWEST = 500
"""Objects whose tokens PostgreSQL compares first: its index reads all objects that have a common word."""

_SCANS = text(
    "SELECT set_config('enable_seqscan', :allowed, true), set_config('enable_indexscan', :allowed, true)"
)


def newest(
    connection: Connection, required: TokenQuery, condition: Condition, before: int, limit: int
) -> list[int]:
    """The keys of objects below `before` that have the tokens and meet the condition, newest first."""

    def keys(query: Select[tuple[int]]) -> list[int]:
        return list(connection.scalars(query.limit(limit)))

    if connection.dialect.name == "sqlite":
        return keys(_sqlite(required, condition, before))
    if required.common:
        connection.execute(_SCANS, {"allowed": "on"})
        first = keys(_among_newest(required, condition, before))
        if len(first) == limit:
            return first
    # the planner does not know that a row's tokens are expensive to read: it shall use their index
    connection.execute(_SCANS, {"allowed": "off"})
    return keys(_postgresql(required, condition, before))


def _sqlite(required: TokenQuery, condition: Condition, before: int) -> Select[tuple[int]]:
    key = _searches.c.rowid
    expression = _both(required.all)
    if required.any:
        expression += f" AND ({' OR '.join(map(_quoted, required.any))})"
    for tokens in required.but:
        expression = f"({expression}) NOT ({_both(tokens)})"
    match = literal_column(_searches.name).op("MATCH")(expression)
    return select(key).where(match, key < before, condition(key)).order_by(key.desc())


def _both(tokens: Iterable[str]) -> str:
    return " AND ".join(map(_quoted, tokens))


def _quoted(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


def _among_newest(required: TokenQuery, condition: Condition, before: int) -> Select[tuple[int]]:
    key = _searches.c.rowid
    row = select(_searches).where(key < before).order_by(key.desc()).limit(NEWEST).subquery().c
    query = select(row.rowid).where(_has("@>", required.all, row.tokens), condition(row.rowid))
    if required.any:
        query = query.where(_has("&&", required.any, row.tokens))
    excluded = (not_(_has("@>", tokens, row.tokens)) for tokens in required.but)
    return query.where(*excluded).order_by(row.rowid.desc())


def _postgresql(required: TokenQuery, condition: Condition, before: int) -> Select[tuple[int]]:
    """The inner query reads the index and sorts; the condition is asked of as many as the limit needs."""

    def matching(tokens: tuple[str, ...]) -> Select[tuple[int]]:
        having = select(_searches.c.rowid).where(_has("@>", tokens))
        return having.where(_has("&&", required.any)) if required.any else having

    newest_first = matching(required.all).where(_searches.c.rowid < before).order_by(_searches.c.rowid.desc())
    key = newest_first.offset(0).subquery().c.rowid
    query = select(key).where(condition(key)).order_by(key.desc())
    return query.where(*(key.not_in(matching(tokens)) for tokens in required.but))


def _has(
    operator: str, tokens: tuple[str, ...], column: ColumnElement[Any] = _searches.c.tokens
) -> ColumnElement[bool]:
    return type_coerce(column, ARRAY(Text)).bool_op(operator)(literal(list(tokens), ARRAY(Text)))
