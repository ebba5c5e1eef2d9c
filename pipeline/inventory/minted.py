"""What the inventory knows of jobs and of the ARKs minted for them, whatever the record's counters say."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select, union_all

from pipeline.inventory.statements import NAMES_AT_A_TIME, insert_if_new, portions
from pipeline.inventory.tables import ingests, local_ids, minted_arks, objects
from pipeline.job_identity import reused, same_job
from pipeline.records import Job, now

_KNOWN = union_all(
    *(
        select(name).where(name.in_(bindparam("arks", expanding=True)))
        for name in (objects.c.ark, minted_arks.c.ark, local_ids.c.inv_object_ark)
    )
)

_CLAIMED = select(minted_arks.c.job_id, minted_arks.c.job_key).where(minted_arks.c.ark == bindparam("ark"))

_ENTERED = (
    select(ingests.c.job_key, ingests.c.batch_id, ingests.c.filename, objects.c.ark)
    .join(objects, objects.c.id == ingests.c.inv_object_id)
    .where(ingests.c.job_id == bindparam("jid"))
)

_MINTED = (
    select(minted_arks.c.ark, minted_arks.c.job_key)
    .where(minted_arks.c.job_id == bindparam("jid"))
    .order_by(minted_arks.c.created)
)


def known(connection: Connection, arks: Sequence[str]) -> frozenset[str]:
    """Those of the ARKs that name an object, were minted, or have a local id."""
    return frozenset(
        ark
        for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME // len(_KNOWN.selects))
        for ark in connection.scalars(_KNOWN, {"arks": portion})
    )


def claim(connection: Connection, job: Job, ark: str) -> bool:
    """Enter the ARK as minted for the job; False if the ARK was minted for another job."""
    key = job.configuration.key
    minted = {"ark": ark, "job_id": job.jid, "job_key": key, "created": now()}
    if insert_if_new(connection, minted_arks.c.ark, minted) is not None:
        return True
    row = connection.execute(_CLAIMED, {"ark": ark}).one()
    return (row.job_id, row.job_key) == (job.jid, key)


def ark_of(connection: Connection, job: Job) -> str | None:
    """The ARK under which the job was entered, or that was minted for it; None if the job is not known.

    StepFailed(system) if another job of the same number is known.
    """
    entered = connection.execute(_ENTERED, {"jid": job.jid}).one_or_none()
    if entered is not None:
        if not same_job(job, entered.job_key or "", entered.batch_id, entered.filename):
            raise reused(job.jid, f"the inventory has {entered.ark} from it")
        return str(entered.ark)
    minted = connection.execute(_MINTED, {"jid": job.jid}).all()
    own = [row.ark for row in minted if row.job_key == job.configuration.key]
    if minted and not own:
        raise reused(job.jid, f"{minted[-1].ark} was minted for it")
    return own[-1] if own else None
