"""Tokens of the web interfaces, and logins to the pages: the SHA-256 and the rights, never the token.

Rule: a name is never reused, because batches and idempotency keys belong to `token:NAME`. What the token of a
login does belongs to its person.
"""

from datetime import datetime

from pydantic import Field
from sqlalchemy import Connection, delete, select, update

from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import insert, logins, tokens
from pipeline.principal import Role
from pipeline.records import Record, now

LOGINS_OF_ONE = 100
"""Maximum logins of a browser and of programs per name: a further login ends the oldest."""


class TokenEntry(Record):
    """One token; `hash` identifies it and is not shown, and so is empty in what a site answered."""

    name: str
    hash: str = Field("", exclude=True, repr=False)
    role: Role
    collections: frozenset[str] | None = None
    """None: all collections."""
    created: datetime
    created_by: str = ""
    revoked: datetime | None = None
    revoked_by: str = ""
    used: datetime | None = None
    """The last use, a minute late at most; None if it was never used."""
    expires: datetime | None = None
    """Of the token of a login: its end. Then it is removed, because nothing belongs to its name."""
    person: str | None = None
    """Who logged in: what the token does is done by this person."""
    credential: str | None = Field(None, exclude=True, repr=False)
    """The basis of a login's rights, as that of a `LoginEntry`."""


def insert_token(inventory: SqlInventory, entry: TokenEntry) -> bool:
    """Insert the token, unless it is there; False if another token has the name.

    Removes tokens of logins that expired, and the oldest of the person beyond LOGINS_OF_ONE.
    """
    of_person = tokens.c.person.is_not(None) & (tokens.c.person == entry.person)
    newest = select(tokens.c.hash).where(of_person).order_by(tokens.c.created.desc()).limit(LOGINS_OF_ONE)
    given = None if entry.collections is None else sorted(entry.collections)
    hidden = {"hash": entry.hash, "credential": entry.credential}
    row = {**entry.model_dump(), **hidden, "role": entry.role.value, "collections": given}

    def write(connection: Connection) -> bool:
        connection.execute(delete(tokens).where(tokens.c.expires < now()))
        connection.execute(insert(connection, tokens).on_conflict_do_nothing(), row)
        connection.execute(delete(tokens).where(of_person, tokens.c.hash.not_in(newest)))
        owner = connection.scalar(select(tokens.c.hash).where(tokens.c.name == entry.name))
        return bool(owner == entry.hash)

    return inventory.database.write(write)


def all_tokens(inventory: SqlInventory) -> tuple[TokenEntry, ...]:
    """All tokens by name, including revoked ones."""
    query = select(tokens).order_by(tokens.c.name)
    return tuple(TokenEntry.model_validate(dict(row)) for row in inventory.database.rows(query))


def token_with_hash(inventory: SqlInventory, digest: str) -> TokenEntry | None:
    rows = inventory.database.rows(select(tokens).where(tokens.c.hash == digest))
    return TokenEntry.model_validate(dict(rows[0])) if rows else None


def token_named(inventory: SqlInventory, name: str) -> TokenEntry | None:
    rows = inventory.database.rows(select(tokens).where(tokens.c.name == name))
    return TokenEntry.model_validate(dict(rows[0])) if rows else None


def revoke_token(inventory: SqlInventory, name: str, by: str, at: datetime) -> TokenEntry | None:
    """Revoke and return the token; the first revocation is kept. None if there is no token of this name."""
    change = update(tokens).where(tokens.c.name == name, tokens.c.revoked.is_(None))
    query = select(tokens).where(tokens.c.name == name)

    def write(connection: Connection) -> TokenEntry | None:
        connection.execute(change.values(revoked=at, revoked_by=by))
        row = connection.execute(query).mappings().one_or_none()
        return None if row is None else TokenEntry.model_validate(dict(row))

    return inventory.database.write(write)


def note_use(inventory: SqlInventory, name: str, at: datetime) -> None:
    inventory.database.run(update(tokens).where(tokens.c.name == name).values(used=at))


class LoginEntry(Record):
    """One login; `hash` identifies it."""

    hash: str = Field(repr=False)
    name: str
    """The name of the token, or of the person at the provider."""
    credential: str = Field(repr=False)
    """The basis of the rights: the token's hash, or the sealed session of the provider's login."""
    ends: datetime


def insert_login(inventory: SqlInventory, entry: LoginEntry) -> None:
    """Insert a login; removes expired logins, and the oldest of the name beyond LOGINS_OF_ONE."""
    own = select(logins.c.hash).where(logins.c.name == entry.name)
    newest = own.order_by(logins.c.ends.desc(), logins.c.hash).limit(LOGINS_OF_ONE)

    def write(connection: Connection) -> None:
        connection.execute(delete(logins).where(logins.c.ends < now()))
        connection.execute(insert(connection, logins), entry.model_dump())
        connection.execute(delete(logins).where(logins.c.name == entry.name, logins.c.hash.not_in(newest)))

    inventory.database.write(write)


def login_with_hash(inventory: SqlInventory, digest: str) -> LoginEntry | None:
    rows = inventory.database.rows(select(logins).where(logins.c.hash == digest))
    return LoginEntry.model_validate(dict(rows[0])) if rows else None


def delete_login(inventory: SqlInventory, digest: str) -> None:
    inventory.database.run(delete(logins).where(logins.c.hash == digest))
