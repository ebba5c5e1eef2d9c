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


def titles(connection: Connection, owner: str, within: Sequence[str], arks: Sequence[str]) -> dict[str, str]:
    """ARK -> title, for those of the ARKs that name an object of the owner in one of these collections."""
    query = (
        select(objects.c.ark, objects.c.erc_what)
        .join(owners, owners.c.id == objects.c.inv_owner_id)
        .join(memberships, memberships.c.inv_object_id == objects.c.id)
        .join(collections, collections.c.id == memberships.c.inv_collection_id)
        .where(owners.c.ark == owner, collections.c.ark.in_(within))
    )
    known: dict[str, str] = {}
    for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME):
        known.update(
            (ark, title) for ark, title in connection.execute(query.where(objects.c.ark.in_(portion)))
        )
    return known
