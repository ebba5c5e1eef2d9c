"""Proofs of custody in the inventory: fixity checks that somebody asked for now, with their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from pipeline.errors import ArklineError, ErrorKind
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tables import objects, proofs

WAITING = 50
"""Maximum waiting proofs."""

OF_ONE = 5
"""Maximum unfinished proofs of one principal."""


class TooManyProofs(ArklineError):
    """The limit of waiting proofs, of the site or of the caller, is reached; a retry may succeed later."""

    error_kind = ErrorKind.UNREACHABLE


@dataclass(frozen=True)
class AskedProof:
    id: str
    ark: str
    version: int
    asked: datetime
    began: datetime | None
    ended: datetime | None
    bytes_read: int
    bytes_total: int
    ahead: int
    """Proofs that were asked for before it and have not begun."""
    message: str
    custody: str | None
    """The result as JSON."""


def ask(inventory: SqlInventory, ark: str, version: int, by: str, facts: Mapping[str, Any]) -> AskedProof:
    """The proof of the version that has not ended, or a new one with `facts`; TooManyProofs."""

    def write(connection: Connection) -> AskedProof:
        of_version = (objects.c.ark == ark, proofs.c.version == version, proofs.c.ended.is_(None))
        known = _first(connection, _query().where(*of_version))
        if known is not None:
            return known
        _check_room(connection, by)
        of_ark = select(objects.c.id).where(objects.c.ark == ark).scalar_subquery()
        new = {"inv_object_id": of_ark, "version": version, "asked_by": by, "bytes_read": 0, **facts}
        connection.execute(insert(proofs).values(new))
        asked = _first(connection, _query().where(proofs.c.id == facts["id"]))
        assert asked is not None
        return asked

    return inventory.database.write(write)


def _check_room(connection: Connection, by: str) -> None:
    unended = select(func.count()).where(proofs.c.ended.is_(None))
    waiting = connection.scalar(unended.where(proofs.c.began.is_(None))) or 0
    if waiting >= WAITING:
        raise TooManyProofs(f"{waiting} proofs wait already: ask again when some have ended")
    own = connection.scalar(unended.where(proofs.c.asked_by == by)) or 0
    if own >= OF_ONE:
        raise TooManyProofs(f"{own} proofs that you asked for have not ended: ask again when some have")


def find(inventory: SqlInventory, proof_id: str) -> AskedProof | None:
    return _read(inventory, _query().where(proofs.c.id == proof_id))


def latest(inventory: SqlInventory, ark: str, version: int) -> AskedProof | None:
    own = _query().where(objects.c.ark == ark, proofs.c.version == version)
    return _read(inventory, own.order_by(proofs.c.asked.desc()))


def next_asked(inventory: SqlInventory) -> AskedProof | None:
    """The oldest that has not ended."""
    return _read(inventory, _query().where(proofs.c.ended.is_(None)).order_by(proofs.c.asked, proofs.c.id))


def begin(inventory: SqlInventory, proof: AskedProof, at: datetime) -> None:
    if proof.began is None:
        _change(inventory, proof, {"began": at})


def count_bytes(inventory: SqlInventory, proof: AskedProof, read: int) -> None:
    _change(inventory, proof, {"bytes_read": min(read, proof.bytes_total)})


def end(inventory: SqlInventory, proof: AskedProof, at: datetime, facts: Mapping[str, Any]) -> None:
    """Enter the result; the earlier ones of the version go."""

    def write(connection: Connection) -> None:
        row = connection.execute(select(proofs.c.inv_object_id).where(proofs.c.id == proof.id)).scalar_one()
        connection.execute(
            delete(proofs).where(
                proofs.c.inv_object_id == row, proofs.c.version == proof.version, proofs.c.ended.is_not(None)
            )
        )
        connection.execute(update(proofs).where(proofs.c.id == proof.id).values(ended=at, **facts))

    inventory.database.write(write)


def _change(inventory: SqlInventory, proof: AskedProof, values: Mapping[str, Any]) -> None:
    statement = update(proofs).where(proofs.c.id == proof.id, proofs.c.ended.is_(None)).values(**values)
    inventory.database.write(lambda connection: connection.execute(statement))


def _query() -> Select[Any]:
    before = proofs.alias()
    ahead = select(func.count()).where(
        before.c.ended.is_(None), before.c.began.is_(None), before.c.asked < proofs.c.asked
    )
    return (
        select(proofs, objects.c.ark, ahead.scalar_subquery().label("ahead"))
        .join(objects, objects.c.id == proofs.c.inv_object_id)
        .limit(1)
    )


def _read(inventory: SqlInventory, query: Select[Any]) -> AskedProof | None:
    return inventory.database.read(lambda connection: _first(connection, query))


def _first(connection: Connection, query: Select[Any]) -> AskedProof | None:
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return AskedProof(
        id=row.id,
        ark=row.ark,
        version=row.version,
        asked=row.asked,
        began=row.began,
        ended=row.ended,
        bytes_read=row.bytes_read,
        bytes_total=row.bytes_total,
        ahead=row.ahead if row.began is None and row.ended is None else 0,
        message=row.message,
        custody=row.custody,
    )
