"""Local ids: a local id belongs permanently to one object of its owner."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from pipeline.inventory import placement
from pipeline.inventory.statements import NAMES_AT_A_TIME, insert_new, portions
from pipeline.inventory.tables import LOCAL_ID_LENGTH, local_ids
from pipeline.outcome import content
from pipeline.records import now


def known(connection: Connection, owner: str, names: Sequence[str]) -> dict[str, str]:
    """Local id -> ARK, for the local ids of this owner that are known."""
    arks: dict[str, str] = {}
    for portion in portions(dict.fromkeys(names), NAMES_AT_A_TIME):
        rows = connection.execute(
            select(local_ids.c.local_id, local_ids.c.inv_object_ark).where(
                local_ids.c.inv_owner_ark == owner, local_ids.c.local_id.in_(portion)
            )
        )
        arks.update((local_id, ark) for local_id, ark in rows)
    return arks


def of_object(connection: Connection, ark: str) -> tuple[str, ...]:
    """The local ids of the object, in the order in which they were recorded."""
    query = select(local_ids.c.local_id).where(local_ids.c.inv_object_ark == ark).order_by(local_ids.c.id)
    return tuple(connection.scalars(query))


def arks(connection: Connection, local_id: str) -> tuple[str, ...]:
    """The ARKs with this local id: one per owner that uses the id."""
    query = select(local_ids.c.inv_object_ark).where(local_ids.c.local_id == local_id)
    return tuple(connection.scalars(query.order_by(local_ids.c.id)))


def reserve(connection: Connection, owner: str, ark: str, ids: Sequence[str]) -> None:
    """Reserve the ids for `ark`; StepFailed(content) if an id is invalid or belongs to another object."""
    # sorted, so that two jobs with the same ids cannot deadlock
    names = sorted(set(ids))
    if not names:
        return
    for name in names:
        if not name or len(name) > LOCAL_ID_LENGTH:
            raise content(
                f"the local id '{name[:80]}' has {len(name)} characters; 1 to {LOCAL_ID_LENGTH} are allowed"
            )
    created = now()
    insert_new(
        connection,
        local_ids,
        [
            {"inv_object_ark": ark, "inv_owner_ark": owner, "local_id": name, "created": created}
            for name in names
        ],
    )
    # the insert above waited for transactions with the same ids, so the result of this query is final
    for name, named in sorted(known(connection, owner, names).items()):
        if named != ark:
            raise content(
                f"the local id '{name}' of owner {owner} belongs to {named}, not to {ark}: submit "
                "again with that "
                "ARK, or without this local id"
            )


def check_owner(connection: Connection, owner: str, ark: str) -> None:
    """StepFailed(content) if the object exists and belongs to another owner."""
    check_same_owner(placement.owner_of(connection, ark), owner, ark)


def check_same_owner(current: str | None, owner: str, ark: str) -> None:
    """`current`: the owner of the object, if it exists."""
    if current is not None and current != owner:
        raise content(
            f"{ark} belongs to another owner than the submission's collection: submit the object to a "
            "collection of its owner"
        )
