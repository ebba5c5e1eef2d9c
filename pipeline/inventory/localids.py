"""Local ids: each names one object of its owner, for good."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from pipeline.inventory.statements import NAMES_AT_A_TIME, insert_new, portions
from pipeline.inventory.tables import LOCAL_ID_LENGTH, local_ids, objects, owners
from pipeline.outcome import content
from pipeline.records import now


def known(connection: Connection, owner: str, wanted: Sequence[str]) -> dict[str, str]:
    """Local id -> ARK, for those of this owner that are known."""
    found: dict[str, str] = {}
    for some in portions(dict.fromkeys(wanted), NAMES_AT_A_TIME):
        rows = connection.execute(
            select(local_ids.c.local_id, local_ids.c.inv_object_ark).where(
                local_ids.c.inv_owner_ark == owner, local_ids.c.local_id.in_(some)
            )
        )
        found.update((local_id, ark) for local_id, ark in rows)
    return found


def of_object(connection: Connection, ark: str) -> tuple[str, ...]:
    """In the order in which they became known."""
    query = select(local_ids.c.local_id).where(local_ids.c.inv_object_ark == ark).order_by(local_ids.c.id)
    return tuple(connection.scalars(query))


def arks(connection: Connection, local_id: str) -> tuple[str, ...]:
    """One for each owner that uses the id."""
    query = select(local_ids.c.inv_object_ark).where(local_ids.c.local_id == local_id)
    return tuple(connection.scalars(query.order_by(local_ids.c.id)))


def reserve(connection: Connection, owner: str, ark: str, wanted: Sequence[str]) -> None:
    """Make the ids name `ark`; StepFailed(content) if one names another object, or is no usable name."""
    # sorted, so that two jobs with the same ids wait for each other instead of dead-locking
    names = sorted(set(wanted))
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
    # an id that another transaction is entering was waited for above, so what is read now is final
    for name, named in sorted(known(connection, owner, names).items()):
        if named != ark:
            raise content(
                f"the local id '{name}' of owner {owner} already names {named}, so it cannot name {ark}: "
                "submit with that ARK, or without this local id"
            )


def check_owner(connection: Connection, owner: str, ark: str) -> None:
    """StepFailed(content) if the object exists and is another owner's."""
    found = connection.scalar(
        select(owners.c.ark).join(objects, objects.c.inv_owner_id == owners.c.id).where(objects.c.ark == ark)
    )
    if found is not None and found != owner:
        raise content(
            f"{ark} belongs to owner {found}, but the submission's collection belongs to {owner}: "
            "submit it to a collection of its owner"
        )
