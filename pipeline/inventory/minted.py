"""What the inventory knows of jobs and of the ARKs minted for them, whatever the record's counters say."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, exists, null, select, union_all

from pipeline.inventory import localids
from pipeline.inventory.statements import NAMES_AT_A_TIME, insert_if_new, portions
from pipeline.inventory.tables import ingests, local_ids, minted_arks, objects, owners
from pipeline.records import Job, now, reused, same_job

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


def known(connection: Connection, arks: Sequence[str]) -> frozenset[str]:
    """Those of the ARKs that name an object, were minted, or have a local id."""
    return frozenset(
        ark
        for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME // len(_KNOWN.selects))
        for ark in connection.scalars(_KNOWN, {"arks": portion})
    )


def claim(connection: Connection, job: Job, owner: str, ark: str, *, unused: bool) -> bool:
    """Enter the ARK as minted for the job; False if it was minted for another job, or has to be `unused` and
    the inventory knows it. StepFailed(content) if its object belongs to another owner.
    """
    key = job.configuration.key
    standing = connection.execute(_STANDING, {"ark": ark}).one()
    if standing.job_id is None and unused and (standing.owner is not None or standing.named):
        return False
    localids.check_same_owner(standing.owner, owner, ark)
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
