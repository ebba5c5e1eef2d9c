"""Whose an object is: its permanent local ids, its minted ARK, its owner and its collections.

An ARK belongs to its job from the moment it is minted, whatever becomes of the record's counter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, exists, null, select, union_all

from pipeline.inventory.statements import NAMES_AT_A_TIME, insert_if_new, insert_new, portions
from pipeline.inventory.tables import (
    LOCAL_ID_LENGTH,
    collections,
    ingests,
    local_ids,
    memberships,
    minted_arks,
    objects,
    owners,
)
from pipeline.outcome import content
from pipeline.records import Job, now, reused, same_job


def known_local_ids(connection: Connection, owner: str, names: Sequence[str]) -> dict[str, str]:
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


def local_ids_of(connection: Connection, ark: str) -> tuple[str, ...]:
    """The local ids of the object, in the order in which they were recorded."""
    query = select(local_ids.c.local_id).where(local_ids.c.inv_object_ark == ark).order_by(local_ids.c.id)
    return tuple(connection.scalars(query))


def arks_named(connection: Connection, local_id: str) -> tuple[str, ...]:
    """The ARKs with this local id: one per owner that uses the id."""
    query = select(local_ids.c.inv_object_ark).where(local_ids.c.local_id == local_id)
    return tuple(connection.scalars(query.order_by(local_ids.c.id)))


def reserve_local_ids(connection: Connection, owner: str, ark: str, ids: Sequence[str]) -> None:
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
    for name, named in sorted(known_local_ids(connection, owner, names).items()):
        if named != ark:
            raise content(
                f"the local id '{name}' of owner {owner} belongs to {named}, not to {ark}: submit "
                "again with that "
                "ARK, or without this local id"
            )


def check_owner(connection: Connection, owner: str, ark: str) -> None:
    """StepFailed(content) if the object exists and belongs to another owner."""
    check_same_owner(owner_of(connection, ark), owner, ark)


def check_same_owner(current: str | None, owner: str, ark: str) -> None:
    """`current`: the owner of the object, if it exists."""
    if current is not None and current != owner:
        raise content(
            f"{ark} belongs to another owner than the submission's collection: submit the object to a "
            "collection of its owner"
        )


_KNOWN = union_all(
    *(
        select(name).where(name.in_(bindparam("arks", expanding=True)))
        for name in (objects.c.ark, minted_arks.c.ark, local_ids.c.inv_object_ark)
    )
)

_STANDING = select(
    select(owners.c.ark)
    .join(objects, objects.c.inv_owner_id == owners.c.id)
    .where(objects.c.ark == bindparam("ark"))
    .scalar_subquery()
    .label("owner"),
    exists().where(local_ids.c.inv_object_ark == bindparam("ark")).label("named"),
    *(
        select(column).where(minted_arks.c.ark == bindparam("ark")).scalar_subquery().label(column.name)
        for column in (minted_arks.c.job_id, minted_arks.c.job_key)
    ),
)
"""What the inventory knows of an ARK."""

_OF_JOB = union_all(
    select(
        minted_arks.c.ark,
        minted_arks.c.job_key,
        minted_arks.c.created.label("minted"),
        null().label("bid"),
        null().label("payload_name"),
    ).where(minted_arks.c.job_id == bindparam("jid")),
    select(objects.c.ark, ingests.c.job_key, null(), ingests.c.batch_id, ingests.c.filename)
    .join(objects, objects.c.id == ingests.c.inv_object_id)
    .where(ingests.c.job_id == bindparam("jid")),
)
"""The ARKs that were minted for a job, and the one under which it was entered."""


def known_arks(connection: Connection, arks: Sequence[str]) -> frozenset[str]:
    """Those of the ARKs that name an object, were minted, or have a local id."""
    return frozenset(
        ark
        for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME // len(_KNOWN.selects))
        for ark in connection.scalars(_KNOWN, {"arks": portion})
    )


def claim_ark(connection: Connection, job: Job, owner: str, ark: str, *, unused: bool) -> bool:
    """Enter the ARK as minted for the job; False if it was minted for another job, or has to be `unused` and
    the inventory knows it. StepFailed(content) if its object belongs to another owner.
    """
    key = job.configuration.key
    standing = connection.execute(_STANDING, {"ark": ark}).one()
    if standing.job_id is None and unused and (standing.owner is not None or standing.named):
        return False
    check_same_owner(standing.owner, owner, ark)
    if standing.job_id is None:
        minted = {"ark": ark, "job_id": job.jid, "job_key": key, "created": now()}
        if insert_if_new(connection, minted_arks.c.ark, minted) is not None:
            return True
        standing = connection.execute(_STANDING, {"ark": ark}).one()  # another process was faster
    return (standing.job_id, standing.job_key) == (job.jid, key)


def ark_of(connection: Connection, job: Job) -> str | None:
    """The ARK under which the job was entered, or that was minted for it; None if the job is not known.

    StepFailed(system) if another job of the same number is known.
    """
    rows = connection.execute(_OF_JOB, {"jid": job.jid}).all()
    for entered in (row for row in rows if row.minted is None):
        if not same_job(job, entered.job_key or "", entered.bid, entered.payload_name):
            raise reused(job.jid, f"the inventory has {entered.ark} from it")
        return str(entered.ark)
    minted = sorted(rows, key=lambda row: row.minted)
    own = [row.ark for row in minted if row.job_key == job.configuration.key]
    if minted and not own:
        raise reused(job.jid, f"{minted[-1].ark} was minted for it")
    return own[-1] if own else None


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


def placement_of(connection: Connection, ark: str) -> Placement | None:
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
