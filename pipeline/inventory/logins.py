"""Logins of people at the pages: the SHA-256 of what each browser keeps, whose it is, and when it ends."""

from datetime import datetime

from pydantic import Field
from sqlalchemy import Connection, delete, insert, select

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import logins
from pipeline.records import Record, now

LOGINS_OF_ONE = 100
"""Logins of one name at most: a further one ends the oldest."""


class LoginEntry(Record):
    """One login; `hash` identifies it."""

    hash: str = Field(repr=False)
    name: str
    """Of the token, or of the person at the provider."""
    credential: str = Field(repr=False)
    """What the rights follow from: the token's hash, or the sealed session of the provider's login."""
    ends: datetime


def insert_login(inventory: SqlInventory, entry: LoginEntry) -> None:
    """Logins that are over, and too many of the same name, are removed."""
    own = select(logins.c.hash).where(logins.c.name == entry.name)
    newest = own.order_by(logins.c.ends.desc(), logins.c.hash).limit(LOGINS_OF_ONE)

    def write(connection: Connection) -> None:
        connection.execute(delete(logins).where(logins.c.ends < now()))
        connection.execute(insert(logins), entry.model_dump())
        connection.execute(delete(logins).where(logins.c.name == entry.name, logins.c.hash.not_in(newest)))

    inventory.database.write(write)


def login_with_hash(inventory: SqlInventory, digest: str) -> LoginEntry | None:
    query = select(logins).where(logins.c.hash == digest)
    row = inventory.database.read(lambda connection: connection.execute(query).mappings().one_or_none())
    return None if row is None else LoginEntry.model_validate(dict(row))


def delete_login(inventory: SqlInventory, digest: str) -> None:
    statement = delete(logins).where(logins.c.hash == digest)
    inventory.database.write(lambda connection: connection.execute(statement))
