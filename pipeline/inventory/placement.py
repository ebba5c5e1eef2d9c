"""The owner and the collections of an object."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from pipeline.inventory.statements import NAMES_AT_A_TIME, portions
from pipeline.inventory.tables import collections, memberships, objects, owners

_OWNER = (
    select(owners.c.ark)
    .join(objects, objects.c.inv_owner_id == owners.c.id)
    .where(objects.c.ark == bindparam("ark"))
)


@dataclass(frozen=True)
class Placement:
    owner: str
    collections: frozenset[str]


def owner_of(connection: Connection, ark: str) -> str | None:
    """The ARK of the object's owner; None if the inventory has no such object."""
    return connection.scalar(_OWNER, {"ark": ark})


def of(connection: Connection, ark: str) -> Placement | None:
    """The object's placement; None if the inventory has no such object."""
    owner = owner_of(connection, ark)
    if owner is None:
        return None
    members = connection.scalars(
        select(collections.c.ark)
        .join(memberships, memberships.c.inv_collection_id == collections.c.id)
        .join(objects, objects.c.id == memberships.c.inv_object_id)
        .where(objects.c.ark == ark)
    )
    return Placement(owner, frozenset(members))


def titles(connection: Connection, arks: Sequence[str]) -> dict[str, str]:
    """ARK -> title, for those of the ARKs that name an object."""
    known: dict[str, str] = {}
    for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME):
        rows = connection.execute(select(objects.c.ark, objects.c.erc_what).where(objects.c.ark.in_(portion)))
        known.update((ark, title) for ark, title in rows)
    return known
