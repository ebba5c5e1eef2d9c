"""Which objects a principal sees, as a condition in SQL, so that every page is full."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, exists, false, not_, or_, select, true

from pipeline.inventory.tables import ingests, objects, rows_with


@dataclass(frozen=True)
class Sight:
    """An object is seen if this holds of all of its versions."""

    collections: frozenset[str] | None = None
    """Those of the versions; None: any."""
    depositor: str | None = None
    """The identity that submitted them; None: any. Versions whose depositor is not known are not seen."""


EVERYTHING = Sight()


def sees(sight: Sight, object_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether the object of this key is seen."""
    hidden: list[ColumnElement[bool]] = []
    if sight.collections is not None:
        if not sight.collections:
            return false()
        hidden.append(ingests.c.profile.not_in(sorted(sight.collections)))
    if sight.depositor is not None:
        hidden += [ingests.c.depositor.is_(None), ingests.c.depositor != sight.depositor]
    if not hidden:
        return true()
    of_object = ingests.c.inv_object_id == object_id
    return exists().where(of_object) & not_(exists().where(of_object, or_(*hidden)))


def candidates(sight: Sight) -> tuple[ColumnElement[int], Select[tuple[int]]] | None:
    """A column of keys, and its rows of the objects that may be seen; None if those are all or none.

    In the order of an index, so that the first objects are found without reading the others.
    """
    own = ingests.alias()
    if sight.depositor is not None:
        return own.c.inv_object_id, select(own.c.inv_object_id).where(own.c.depositor == sight.depositor)
    if sight.collections:
        of_collections = own.c.profile.in_(sorted(sight.collections))
        return own.c.inv_object_id, select(own.c.inv_object_id).where(of_collections)
    return None


def deposited_by(depositor: str, after: int) -> Select[tuple[int]]:
    """The keys above `after` of the objects that have a version of this depositor."""
    of_depositor = ingests.c.depositor == depositor
    return select(ingests.c.inv_object_id).where(of_depositor, ingests.c.inv_object_id > after)


def is_seen(connection: Connection, ark: str, sight: Sight) -> bool:
    query = select(objects.c.id).where(objects.c.ark == ark, sees(sight, objects.c.id))
    return connection.scalar(query) is not None


def not_of(connection: Connection, depositor: str, arks: Iterable[str]) -> frozenset[str]:
    """The ARKs of objects that have a version of another depositor."""
    of_others = ingests.c.depositor != depositor
    query = select(objects.c.ark).join(ingests, ingests.c.inv_object_id == objects.c.id).where(of_others)
    return frozenset(ark for (ark,) in rows_with(connection, query.distinct(), objects.c.ark, arks))
