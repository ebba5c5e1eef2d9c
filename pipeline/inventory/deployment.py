"""The deployment of an inventory: one row, compared in every transaction with what the process expects."""

from collections.abc import Sequence

from sqlalchemy import Column, Connection, func, select

from pipeline.deployment import Deployment
from pipeline.inventory.tables import (
    NAMES_AT_A_TIME,
    batches_archived,
    deployments,
    ingests,
    insert,
    jobs_archived,
    minted_arks,
    objects,
    portions,
)
from pipeline.records import number_of

_ROW = 1

_OF_ROW = select(deployments.c.id, deployments.c.created, deployments.c.mark)
"""Composed once, like all statements of every job: to compose one costs as much as to run it."""


ID_AND_MARK = "SELECT id, mark FROM deployment"
"""As text, since every transaction has it: to run the statement above takes three times as long."""


def read(connection: Connection) -> Deployment | None:
    row = connection.execute(_OF_ROW).one_or_none()
    return None if row is None else Deployment(id=row.id, created=row.created, mark=row.mark)


def write(connection: Connection, deployment: Deployment) -> None:
    """Write the row, or set the mark of the row that has this id."""
    values = {"row": _ROW, **deployment.model_dump(include={"id", "created", "mark"})}
    statement = insert(connection, deployments).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["row"], where=deployments.c.id == deployment.id, set_={"mark": deployment.mark}
        )
    )


def last_job(connection: Connection) -> int:
    """The highest job number of an ingest or of a minted ARK; 0 if there is none."""
    return _last_number(connection, "jid", ingests.c.job_id, minted_arks.c.job_id)


def last_archived_job(connection: Connection) -> int:
    """The highest job number in the archive; 0 if there is none."""
    return _last_number(connection, "jid", jobs_archived.c.jid)


def last_batch(connection: Connection) -> int:
    """The highest batch number of an ingest or of the archive; 0 if there is none."""
    return _last_number(connection, "bid", ingests.c.batch_id, batches_archived.c.bid)


def _last_number(connection: Connection, prefix: str, *columns: Column[str]) -> int:
    # by length first: beyond ten digits the names grow
    numbers = []
    for column in columns:
        newest = select(column).where(column.like(f"{prefix}%"))
        numbers.append(connection.scalar(newest.order_by(func.length(column).desc(), column.desc()).limit(1)))
    return max((number_of(name) for name in numbers if name), default=0)


def entered_jobs(connection: Connection, jids: Sequence[str]) -> frozenset[str]:
    """The jobs, out of `jids`, whose version the inventory has."""
    return frozenset(
        jid
        for portion in portions(dict.fromkeys(jids), NAMES_AT_A_TIME)
        for jid in connection.scalars(select(ingests.c.job_id).where(ingests.c.job_id.in_(portion)))
    )


def is_empty(connection: Connection) -> bool:
    tables = (objects.c.id, minted_arks.c.ark)
    return all(connection.scalar(select(column).limit(1)) is None for column in tables)


def newest_versions(connection: Connection, limit: int) -> tuple[tuple[str, str], ...]:
    """(ARK, job id) of the versions that were entered last."""
    query = (
        select(objects.c.ark, ingests.c.job_id)
        .join(objects, objects.c.id == ingests.c.inv_object_id)
        .order_by(ingests.c.id.desc())
    )
    return tuple((ark, jid) for ark, jid in connection.execute(query.limit(limit)))
