"""Tokens of the web interfaces: the SHA-256 of each, with its name and its rights; never the token.

Rule: a name is never used twice, because batches and idempotency keys belong to `token:NAME`.
"""

from datetime import datetime

from pydantic import Field
from sqlalchemy import Connection, select, update

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.statements import insert
from pipeline.inventory.tables import tokens
from pipeline.principal import Role
from pipeline.records import Record


class TokenEntry(Record):
    """One token; `hash` identifies it and is not shown."""

    name: str
    hash: str = Field(exclude=True, repr=False)
    role: Role
    collections: frozenset[str] | None = None
    """None: all collections."""
    created: datetime
    created_by: str = ""
    revoked: datetime | None = None
    revoked_by: str = ""
    used: datetime | None = None
    """The last use, a minute late at most; None if it was never used."""


def insert_token(inventory: SqlInventory, entry: TokenEntry) -> bool:
    """False if another token has the name."""
    given = None if entry.collections is None else sorted(entry.collections)
    row = {**entry.model_dump(), "hash": entry.hash, "role": entry.role.value, "collections": given}

    def write(connection: Connection) -> bool:
        connection.execute(insert(connection, tokens).on_conflict_do_nothing(), row)
        owner = connection.scalar(select(tokens.c.hash).where(tokens.c.name == entry.name))
        return bool(owner == entry.hash)

    return inventory.database.write(write)


def all_tokens(inventory: SqlInventory) -> tuple[TokenEntry, ...]:
    """In the order of their names; those that were revoked are among them."""
    query = select(tokens).order_by(tokens.c.name)
    rows = inventory.database.read(lambda connection: connection.execute(query).mappings().all())
    return tuple(TokenEntry.model_validate(dict(row)) for row in rows)


def token_with_hash(inventory: SqlInventory, digest: str) -> TokenEntry | None:
    query = select(tokens).where(tokens.c.hash == digest)
    row = inventory.database.read(lambda connection: connection.execute(query).mappings().one_or_none())
    return None if row is None else TokenEntry.model_validate(dict(row))


def revoke_token(inventory: SqlInventory, name: str, by: str, at: datetime) -> TokenEntry | None:
    """The token, revoked; who revoked it first stays. None if there is no token of this name."""
    change = update(tokens).where(tokens.c.name == name, tokens.c.revoked.is_(None))
    query = select(tokens).where(tokens.c.name == name)

    def write(connection: Connection) -> TokenEntry | None:
        connection.execute(change.values(revoked=at, revoked_by=by))
        row = connection.execute(query).mappings().one_or_none()
        return None if row is None else TokenEntry.model_validate(dict(row))

    return inventory.database.write(write)


def note_use(inventory: SqlInventory, name: str, at: datetime) -> None:
    statement = update(tokens).where(tokens.c.name == name).values(used=at)
    inventory.database.write(lambda connection: connection.execute(statement))
