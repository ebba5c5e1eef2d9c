"""The tables of the inventory, and their statements in both SQL dialects.

`inv_*` as in Merritt's inventory, `arc_*` for the archive of ended batches and jobs, `deployment`,
`minted_arks`, `tokens`, and `logins`. Only the dialect of the configured database is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.sql.dml import ReturningInsert

from pipeline.checks import FORMAT_IDENTIFICATION
from pipeline.inventory.columns import Prose, Utc, key_column, of_column, prose_column, time_column
from pipeline.names import LOCAL_ID_LENGTH

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insert = sqlite.Insert | postgresql.Insert

ARK_LENGTH = 255
"""Characters; PostgreSQL refuses index rows over 2704 bytes, and a character may take four."""

CHECK_VERSION_LENGTH = FORMAT_LENGTH = 255
"""Characters; what exceeds them is cut."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _partial(name: str | None, condition: str, *columns: str) -> Index:
    """An index of the rows that meet the condition, used by queries with the same words."""
    where = text(condition)
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


owners = Table(
    "inv_owners",
    metadata,
    key_column(),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    prose_column("name"),
)

collections = Table(
    "inv_collections",
    metadata,
    key_column(),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    prose_column("name"),
    prose_column("mnemonic"),
)

objects = Table(
    "inv_objects",
    metadata,
    key_column(),
    of_column("inv_owners", index=True),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    Column("object_type", String(32), nullable=False),
    Column("role", String(32), nullable=False),
    Column("aggregate_role", String(64), nullable=False),
    Column("version_number", Integer, nullable=False),
    prose_column("erc_who"),
    prose_column("erc_what"),
    prose_column("erc_when"),
    prose_column("erc_where"),
    time_column("created"),
    time_column("modified"),
)

memberships = Table(
    "inv_collections_inv_objects",
    metadata,
    Column("inv_collection_id", ForeignKey("inv_collections.id"), primary_key=True),
    Column("inv_object_id", ForeignKey("inv_objects.id"), primary_key=True, index=True),
)

versions = Table(
    "inv_versions",
    metadata,
    key_column(),
    of_column("inv_objects"),
    Column("ark", String(ARK_LENGTH), nullable=False),
    Column("number", Integer, nullable=False),
    prose_column("note"),
    time_column("created"),
    UniqueConstraint("inv_object_id", "number"),
    Index(None, "created"),
)

files = Table(
    "inv_files",
    metadata,
    key_column(),
    of_column("inv_objects"),
    of_column("inv_versions", index=True),
    Column("pathname", Text, nullable=False),
    Column("source", String(16), nullable=False),
    Column("role", String(16), nullable=False),
    Column("full_size", BigInteger, nullable=False),
    Column("billable_size", BigInteger, nullable=False),
    Column("mime_type", Text, nullable=False),
    Column("digest_type", String(16), nullable=False),
    Column("digest_value", String(128), nullable=False),
    time_column("created"),
    # the provenance, in the version that downloaded the file; NULL in other versions and in older rows
    Column("landed_digest", String(128), nullable=True),
    Column("source_digest", String(160), nullable=True),  # empty if nothing was declared
    Column("source_declared_by", Prose, nullable=True),
    Column("source_container", Prose, nullable=True),
    Column("source_url", Prose, nullable=True),
)

ingests = Table(
    "inv_ingests",
    metadata,
    key_column(),
    of_column("inv_objects", index=True),
    of_column("inv_versions", unique=True),
    prose_column("filename"),
    Column("ingest_type", String(64), nullable=False),
    Column("profile", String(255), nullable=False),
    Column("batch_id", String(64), nullable=False, index=True),
    Column("job_id", String(64), nullable=False, unique=True),
    # NULL in the rows of releases before 0.2.1
    Column("job_key", String(32), nullable=True),
    prose_column("user_agent"),
    time_column("submitted"),
    prose_column("storage_url"),
    Column("landed", Utc, nullable=True),
    Column("verified", Utc, nullable=True),
    # when the version was entered; NULL in the rows of releases before 0.2.1
    Column("recorded", Utc, nullable=True),
    # the identity of who submitted it; NULL if that is not known
    Column("depositor", Prose, nullable=True),
    # the index in which the version's tokens are, with its depositor, if known; 0: in none
    Column("index_number", Integer, nullable=False, server_default="0"),
    Column("counted", Boolean, nullable=True),  # NULL until inv_growth and inv_formats have the version
    Index(None, "depositor", "inv_object_id"),
    Index(None, "profile", "inv_object_id"),
    Index(None, "index_number", "id"),
    _partial("ix_inv_ingests_uncounted", "counted IS NULL", "id"),
)

# what was stored, by the day (ISO 8601, UTC) of the versions: objects with their first version, the files of
# depositors whose bytes were added, and all bytes that were added
growth = Table(
    "inv_growth",
    metadata,
    Column("profile", String(255), primary_key=True),
    Column("day", String(10), primary_key=True, index=True),
    Column("objects", BigInteger, nullable=False),
    Column("versions", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

# these files by format: as a check identified it or, with no name of a check, by the media type
formats = Table(
    "inv_formats",
    metadata,
    Column("profile", String(255), primary_key=True),
    Column("check_name", String(64), primary_key=True),
    Column("format", String(FORMAT_LENGTH), primary_key=True),
    Column("files", BigInteger, nullable=False),
)

# bytes of working storage, and of the storage root if its file system is known, once a day
space_days = Table(
    "space_days",
    metadata,
    Column("day", String(10), primary_key=True),
    Column("working_total", BigInteger, nullable=False),
    Column("working_used", BigInteger, nullable=False),
    Column("root_total", BigInteger, nullable=True),
    Column("root_free", BigInteger, nullable=True),
)

local_ids = Table(
    "inv_localids",
    metadata,
    key_column(),
    Column("inv_object_ark", String(ARK_LENGTH), nullable=False, index=True),
    Column("inv_owner_ark", String(ARK_LENGTH), nullable=False),
    Column("local_id", String(LOCAL_ID_LENGTH), nullable=False),
    time_column("created"),
    UniqueConstraint("inv_owner_ark", "local_id"),
)

minted_arks = Table(
    "minted_arks",
    metadata,
    Column("ark", String(ARK_LENGTH), primary_key=True),
    Column("job_id", String(64), nullable=False, index=True),
    Column("job_key", String(32), nullable=False),
    time_column("created"),
)
"""An ARK belongs to its job from the moment it is minted, whatever happens to the record's counter."""

deployments = Table(
    "deployment",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),  # one row, with the number 1
    Column("id", String(32), nullable=False),
    time_column("created"),
    Column("mark", BigInteger, nullable=False),
)

dublin_kernels = Table(
    "inv_dublinkernels",
    metadata,
    key_column(),
    of_column("inv_objects"),
    of_column("inv_versions", index=True),
    Column("seq_num", Integer, nullable=False),
    Column("element", String(32), nullable=False),
    Column("qualifier", String(32), nullable=True),
    prose_column("value"),
)

# one row per object: its last complete check, and when its next check is due
fixities = Table(
    "inv_fixities",
    metadata,
    Column("inv_object_id", ForeignKey("inv_objects.id"), primary_key=True, autoincrement=False),
    # the collection of the latest version
    Column("profile", String(255), nullable=False),
    # the start of the current period: the first read of the last check, or the creation of the object
    time_column("since"),
    Column("checked", Utc, nullable=True),
    Column("proved", Utc, nullable=True),
    Column("versions", Integer, nullable=False, default=0),
    Column("files", Integer, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    # files and descriptions that the last check found to be damaged
    Column("damaged", Integer, nullable=False, index=True, default=0),
    Index(None, "profile", "since"),
    Index(None, "profile", "checked"),
    _partial("ix_inv_fixities_damage", "damaged > 0", "profile"),
)

# what an unfinished check has read; deleted when the check is complete
fixity_reads = Table(
    "inv_fixity_reads",
    metadata,
    key_column(),
    of_column("inv_objects", index=True),
    Column("place", Prose, nullable=False),
    time_column("at"),
    Column("size", BigInteger, nullable=True),
    Column("sha512", String(128), nullable=True),
    prose_column("problem"),
)

# fixity checks on request, with the result; of the ended ones, only the last of each version
proofs = Table(
    "inv_proofs",
    metadata,
    Column("id", String(16), primary_key=True),
    of_column("inv_objects", index=True),
    Column("version", Integer, nullable=False),
    prose_column("asked_by"),
    time_column("asked"),
    Column("began", Utc, nullable=True),
    Column("ended", Utc, nullable=True, index=True),
    Column("bytes_read", BigInteger, nullable=False),
    Column("bytes_total", BigInteger, nullable=False),
    prose_column("message"),
    Column("custody", Text, nullable=True),  # as JSON; NULL if the check could not be done
)

# PREMIS events in the life of a stored object, except those that are columns of inv_ingests: downloaded,
# stored, read back, entered
events = Table(
    "inv_events",
    metadata,
    key_column(),
    of_column("inv_objects", index=True),
    Column("type", String(64), nullable=False),
    time_column("at"),
    prose_column("agent"),
    Column("outcome", String(16), nullable=False),
    Column("damaged", Integer, nullable=False),
    Column("detail", JSON, nullable=False),
    # NULL: the event concerns all versions
    Column("version", Integer, nullable=True),
    Column("note", Prose, nullable=False, server_default=""),
    # when the notice to the operator was sent; the time of the event if it needs no notice
    Column("reported", Utc, nullable=True, index=True),
)

# a run of a check over the files of a version; `unchecked` has also the files of which the run says nothing
checks = Table(
    "inv_checks",
    metadata,
    key_column(),
    of_column("inv_objects", index=True),
    of_column("inv_versions"),
    Column("check_name", String(64), nullable=False),
    Column("check_version", Prose, nullable=False),
    Column("event", String(64), nullable=False),
    Column("stage", String(16), nullable=False),
    time_column("at"),
    Column("fine", Integer, nullable=False),
    Column("found", Integer, nullable=False),
    Column("unchecked", Integer, nullable=False),
    # NULL unless an operator overruled a finding
    Column("overruled_by", Prose, nullable=True),
    Column("overruled_at", Utc, nullable=True),
    Column("overruled_reason", Prose, nullable=True),
    Column("last", Boolean, nullable=False),  # the last run of its check over its version
    Column("counted", Boolean, nullable=True),  # NULL until inv_formats has its formats
    # when the notice to the operator was sent; the time of the run if it needs no notice
    Column("reported", Utc, nullable=True, index=True),
    UniqueConstraint("inv_version_id", "check_name", "check_version", "stage", "at"),
    Index(None, "check_name", "inv_object_id"),
    Index(None, "check_name", "last", "check_version", "at"),
    _partial("ix_inv_checks_uncounted", f"counted IS NULL AND event = '{FORMAT_IDENTIFICATION}'", "id"),
)

# a file without a row of a run was not checked by it
findings = Table(
    "inv_findings",
    metadata,
    key_column(),
    of_column("inv_objects"),
    of_column("inv_checks"),
    # one of the two: a file of the deposit may be no file of the version
    Column("inv_file_id", ForeignKey("inv_files.id"), nullable=True),
    Column("pathname", Prose, nullable=True),
    Column("verdict", String(16), nullable=False),
    Column("code", Prose, nullable=True),
    Column("message", Prose, nullable=True),
    Index(None, "inv_check_id", "inv_file_id"),
    Index(None, "verdict", "inv_object_id"),
    _partial(None, "code IS NOT NULL", "code", "inv_object_id"),
)


def _ended(*own: Column[Any]) -> tuple[Column[Any], ...]:
    return (
        *own,
        Column("profile", String(255), nullable=False),
        prose_column("submitter"),
        Column("state", String(32), nullable=False),
        prose_column("message"),
        prose_column("who"),
        prose_column("why"),
        Column("at", Utc, nullable=False),
    )


batches_archived = Table(
    "arc_batches",
    metadata,
    *_ended(Column("bid", String(64), primary_key=True)),
    Column("submission", JSON, nullable=False),
    Column("report", JSON, nullable=True),
)

jobs_archived = Table(
    "arc_jobs",
    metadata,
    *_ended(
        Column("jid", String(64), primary_key=True),
        Column("bid", String(64), nullable=False, index=True),
    ),
    Column("ark", String(ARK_LENGTH), nullable=True),
    Column("kind", String(16), nullable=True),
    Column("identifiers", JSON, nullable=False),
    Column("configuration", JSON, nullable=False),
    Column("history", JSON, nullable=False),
    # empty in the rows of releases before 0.2.1, which had no remarks
    Column("remark", Prose, nullable=False, server_default=""),
    Index(None, "ark"),
)

# each report of a batch as it was sent; an update has only the changes
reports_sent = Table(
    "arc_reports",
    metadata,
    Column("bid", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    time_column("at"),
    Column("report", JSON, nullable=False),
    prose_column("text"),
)

# who may use the web interfaces; the token itself is not stored anywhere
tokens = Table(
    "tokens",
    metadata,
    Column("name", String(100), primary_key=True),
    # SHA-256 of the token
    Column("hash", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    # NULL: all collections
    Column("collections", JSON(none_as_null=True), nullable=True),
    time_column("created"),
    prose_column("created_by"),
    Column("revoked", Utc, nullable=True),
    prose_column("revoked_by"),
    # accurate to a minute
    Column("used", Utc, nullable=True),
    # of the token of a login: its end, the person, and the basis of the rights; NULL in all others
    Column("expires", Utc, nullable=True),
    Column("person", Prose, nullable=True),
    Column("credential", Prose, nullable=True),
)

# who is logged in at the pages
logins = Table(
    "logins",
    metadata,
    # SHA-256 of the browser's cookie
    Column("hash", String(64), primary_key=True),
    Column("name", String(255), nullable=False, index=True),
    prose_column("credential"),
    time_column("ends"),
)


T = TypeVar("T")

NAMES_AT_A_TIME = 500
"""Values per IN list; all SQLite builds allow 999 parameters."""


def insert(connection: Connection, table: Table) -> Insert:
    """An INSERT that supports ON CONFLICT."""
    return insert_for(connection.dialect.name, table)


def insert_for(dialect: str, table: Table) -> Insert:
    statement: Insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    return statement


@cache
def _insert_new(dialect: str, table: Table) -> Insert:
    return insert_for(dialect, table).on_conflict_do_nothing()


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those of the rows that violate no unique constraint."""
    if rows:
        connection.execute(_insert_new(connection.dialect.name, table), list(rows))


@cache
def _insert_if_new(dialect: str, column: Column[T]) -> ReturningInsert[tuple[T]]:
    return _insert_new(dialect, column.table).returning(column)


def insert_if_new(connection: Connection, column: Column[T], row: Mapping[str, Any]) -> T | None:
    """Insert the row and return its value of the column; None if it violates a unique constraint."""
    return connection.execute(_insert_if_new(connection.dialect.name, column), row).scalar_one_or_none()


def portions(things: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(things)
    while portion := list(islice(rest, size)):
        yield portion


def rows_with(
    connection: Connection, query: Select[Any], column: Column[Any], values: Iterable[str]
) -> Iterator[Any]:
    """The query's rows in which the column has one of the values, of which there may be any number."""
    for portion in portions(dict.fromkeys(values), NAMES_AT_A_TIME):
        yield from connection.execute(query.where(column.in_(portion)))
