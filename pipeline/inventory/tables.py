"""The tables: `inv_*` as in Merritt's inventory, `arc_*` the archive of ended batches and jobs."""

import re
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

ARK_LENGTH = 255
LOCAL_ID_LENGTH = 255
"""Characters; PostgreSQL refuses index rows over 2704 bytes, and a character may take four."""


# PostgreSQL cannot store NUL; half of a surrogate pair is not a character
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Utc(TypeDecorator[datetime]):
    """A point in time in UTC, whatever the database does with time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Prose(TypeDecorator[str]):
    """Text written by people. Characters that the database cannot store are replaced: they must not prevent
    the recording of a stored version."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else _UNSTORABLE.sub("\ufffd", value)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _key() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)


def _prose(name: str) -> Column[str]:
    return Column(name, Prose, nullable=False, default="")


def _time(name: str) -> Column[datetime]:
    return Column(name, Utc, nullable=False)


def _of(table: str, *, index: bool = False, unique: bool = False) -> Column[int]:
    return Column(
        f"{table.removesuffix('s')}_id", ForeignKey(f"{table}.id"), nullable=False, index=index, unique=unique
    )


owners = Table(
    "inv_owners",
    metadata,
    _key(),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    _prose("name"),
)

collections = Table(
    "inv_collections",
    metadata,
    _key(),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    _prose("name"),
    _prose("mnemonic"),
)

objects = Table(
    "inv_objects",
    metadata,
    _key(),
    _of("inv_owners", index=True),
    Column("ark", String(ARK_LENGTH), nullable=False, unique=True),
    Column("object_type", String(32), nullable=False),
    Column("role", String(32), nullable=False),
    Column("aggregate_role", String(64), nullable=False),
    Column("version_number", Integer, nullable=False),
    _prose("erc_who"),
    _prose("erc_what"),
    _prose("erc_when"),
    _prose("erc_where"),
    _time("created"),
    _time("modified"),
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
    _key(),
    _of("inv_objects"),
    Column("ark", String(ARK_LENGTH), nullable=False),
    Column("number", Integer, nullable=False),
    _prose("note"),
    _time("created"),
    UniqueConstraint("inv_object_id", "number"),
)

files = Table(
    "inv_files",
    metadata,
    _key(),
    _of("inv_objects"),
    _of("inv_versions", index=True),
    Column("pathname", Text, nullable=False),
    Column("source", String(16), nullable=False),
    Column("role", String(16), nullable=False),
    Column("full_size", BigInteger, nullable=False),
    Column("billable_size", BigInteger, nullable=False),
    Column("mime_type", Text, nullable=False),
    Column("digest_type", String(16), nullable=False),
    Column("digest_value", String(128), nullable=False),
    _time("created"),
    # the provenance, in the version that downloaded the file; NULL in other versions and in older rows
    Column("landed_digest", String(128), nullable=True),
    # empty if nothing was declared
    Column("source_digest", String(160), nullable=True),
    Column("source_declared_by", Prose, nullable=True),
    Column("source_container", Prose, nullable=True),
    Column("source_url", Prose, nullable=True),
)

ingests = Table(
    "inv_ingests",
    metadata,
    _key(),
    _of("inv_objects", index=True),
    _of("inv_versions", unique=True),
    _prose("filename"),
    Column("ingest_type", String(64), nullable=False),
    Column("profile", String(255), nullable=False),
    Column("batch_id", String(64), nullable=False, index=True),
    Column("job_id", String(64), nullable=False, unique=True),
    _prose("user_agent"),
    _time("submitted"),
    _prose("storage_url"),
    Column("landed", Utc, nullable=True),
    Column("verified", Utc, nullable=True),
)

local_ids = Table(
    "inv_localids",
    metadata,
    _key(),
    Column("inv_object_ark", String(ARK_LENGTH), nullable=False, index=True),
    Column("inv_owner_ark", String(ARK_LENGTH), nullable=False),
    Column("local_id", String(LOCAL_ID_LENGTH), nullable=False),
    _time("created"),
    UniqueConstraint("inv_owner_ark", "local_id"),
)

dublin_kernels = Table(
    "inv_dublinkernels",
    metadata,
    _key(),
    _of("inv_objects"),
    _of("inv_versions", index=True),
    Column("seq_num", Integer, nullable=False),
    Column("element", String(32), nullable=False),
    Column("qualifier", String(32), nullable=True),
    _prose("value"),
)


def _ended(*own: Column[Any]) -> tuple[Column[Any], ...]:
    return (
        *own,
        Column("profile", String(255), nullable=False),
        _prose("submitter"),
        Column("state", String(32), nullable=False),
        _prose("message"),
        _prose("who"),
        _prose("why"),
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
    Index(None, "ark"),
)
