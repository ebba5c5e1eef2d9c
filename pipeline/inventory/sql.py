"""The inventory in an SQL database: every query and every entry is one transaction."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Column, Connection, func, select

from pipeline.deployment import Deployment, Expected
from pipeline.inventory import (
    description,
    embargoes,
    findings,
    growth,
    outdated,
    recording,
    scheduled,
    sight,
)
from pipeline.inventory.database import Database, read_deployment
from pipeline.inventory.search import by_findings, by_text, index
from pipeline.inventory.tables import (
    batches_archived,
    deployments,
    ingests,
    insert,
    minted_arks,
    objects,
    rows_with,
)
from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.records import number_of

P = ParamSpec("P")
T = TypeVar("T")


def _write_deployment(connection: Connection, deployment: Deployment) -> None:
    """Write the row, or raise the mark of the row with this id: a process that was frozen may be late."""
    values = {"row": 1, **deployment.model_dump(include={"id", "created", "mark"})}
    statement = insert(connection, deployments).values(values)
    earlier = (deployments.c.id == deployment.id) & (deployments.c.mark < deployment.mark)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["row"], where=earlier, set_={"mark": deployment.mark})
    )


def last_number(connection: Connection, prefix: str, *columns: Column[str]) -> int:
    """The highest number of a job (`jid`) or a batch (`bid`) in these columns; 0 if there is none."""
    names = []
    for column in columns:
        newest = select(column).where(column.like(f"{prefix}%")).limit(1)
        # in the order of the index, up to the first name that may be one of more digits: others sort after it
        longest = newest.where(column >= f"{prefix}1").order_by(func.length(column).desc(), column.desc())
        names += [connection.scalar(longest), connection.scalar(newest.order_by(column.desc()))]
    return max((number_of(name) for name in names if name), default=0)


def _is_empty(connection: Connection) -> bool:
    tables = (objects.c.id, minted_arks.c.ark)
    return all(connection.scalar(select(column).limit(1)) is None for column in tables)


def _entered_jobs(connection: Connection, jids: Sequence[str]) -> frozenset[str]:
    """Those of the jobs whose version the inventory has."""
    return frozenset(
        jid for (jid,) in rows_with(connection, select(ingests.c.job_id), ingests.c.job_id, jids)
    )


def _newest_versions(connection: Connection, limit: int) -> tuple[tuple[str, str], ...]:
    """(ARK, job id) of the most recently entered versions."""
    query = (
        select(objects.c.ark, ingests.c.job_id)
        .join(objects, objects.c.id == ingests.c.inv_object_id)
        .order_by(ingests.c.id.desc())
    )
    return tuple((ark, jid) for ark, jid in connection.execute(query.limit(limit)))


Question = Callable[Concatenate["SqlInventory", P], T]


def _reads(work: Callable[Concatenate[Connection, P], T]) -> Question[P, T]:
    @wraps(work)
    def method(self: "SqlInventory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.database.read(lambda connection: work(connection, *args, **kwargs))

    return method


def _writes(work: Callable[Concatenate[Connection, P], T]) -> Question[P, T]:
    @wraps(work)
    def method(self: "SqlInventory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.database.write(lambda connection: work(connection, *args, **kwargs))

    return method


def _reads_if_there(otherwise: T, work: Callable[Concatenate[Connection, P], T]) -> Question[P, T]:
    """A method that reads, or returns `otherwise` without a database; ServiceDown if it does not answer."""

    @wraps(work)
    def method(self: "SqlInventory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            if not self.database.exists():
                return otherwise
            return self.database.read(lambda connection: work(connection, *args, **kwargs))
        except StepFailed as failure:
            raise ServiceDown(Service.INVENTORY, failure.message) from failure

    return method


def _last_job(connection: Connection) -> int:
    """The highest job number of an ingest or a minted ARK."""
    return last_number(connection, "jid", ingests.c.job_id, minted_arks.c.job_id)


def _last_batch(connection: Connection) -> int:
    """The highest batch number of an ingest or in the archive."""
    return last_number(connection, "bid", ingests.c.batch_id, batches_archived.c.bid)


class SqlInventory:
    """The inventory; cheap to create, usable in any thread and child process; a `pipeline.deployment.Store`.

    A method runs its function in one transaction. Errors are StepFailed: `content` if identifiers conflict,
    `transient` if a retry may succeed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    record = _writes(recording.enter)
    add_checks = _writes(findings.add_checks)
    unreported_runs = _reads(findings.unreported_runs)
    mark_run_reported = _writes(findings.mark_run_reported)
    reserve_local_ids = _writes(recording.reserve_local_ids)
    claim_ark = _writes(recording.claim_ark)
    local_ids_of = _reads(recording.local_ids_of)
    placement_of = _reads(recording.placement_of)
    placements_of = _reads(recording.placements_of)
    ark_of = _reads(recording.ark_of)
    known_arks = _reads(recording.known_arks)
    objects_named = _reads(recording.arks_named)

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        """Local id -> ARK, for this owner's known local ids; without ids nothing is read."""
        if not local_id:
            return {}
        return self.database.read(lambda connection: recording.known_local_ids(connection, owner, local_id))

    schedule_newest = _writes(scheduled.enter_newest)
    describe_object = _reads(description.describe)
    objects_with = _reads(by_findings.keys)
    found_objects = _reads(by_findings.found_objects)
    is_seen = _reads(sight.is_seen)
    not_of = _reads(sight.not_of)
    objects_by_text = _reads(by_text.hits)
    found_by = _reads(by_text.found_by)
    arks_identified = _reads(by_text.arks_identified)
    all_indexed = _reads(index.all_indexed)
    indexing = _reads(index.indexing)
    unindexed_versions = _reads(index.unindexed)
    index_versions = _writes(index.enter_portion)
    files_of_job = _reads(description.files_of_job)
    deposited_files = _reads(description.deposited_files)
    older_versions = _reads(outdated.older_versions)
    next_outdated = _reads(outdated.next_outdated)
    count_outdated = _reads(outdated.count_outdated)
    events_of = _reads(description.entered_events)
    unread_embargoes = _reads(embargoes.unread)
    enter_embargo = _writes(embargoes.enter)
    enter_export = _writes(description.enter_export)
    stored_between = _reads(growth.stored_between)
    stored_of_batches = _reads(growth.stored_of_batches)

    count_portion = _writes(growth.count_portion)
    all_counted = _reads(growth.all_counted)
    days_of_collection = _reads(growth.days_of)
    formats_of_collection = _reads(growth.formats_of)
    bytes_by_day = _reads(growth.bytes_by_day)
    first_day = _reads(growth.first_day)
    enter_space = _writes(growth.enter_space)
    space_by_day = _reads(growth.space_by_day)

    @property
    def service(self) -> Service:
        return Service.INVENTORY

    @property
    def place(self) -> str:
        return self.database.name

    write_deployment = _writes(_write_deployment)
    read_deployment = _reads_if_there(None, read_deployment)
    is_empty = _reads_if_there(True, _is_empty)
    last_job = _reads_if_there(0, _last_job)
    last_batch = _reads_if_there(0, _last_batch)
    entered_jobs = _reads_if_there(frozenset[str](), _entered_jobs)
    newest_versions = _reads_if_there((), _newest_versions)


def open_inventory(url: str, expected: Expected | None = None, *, create: bool = True) -> SqlInventory:
    """The inventory at an SQLAlchemy URL; a process's first use upgrades the schema.

    `expected`: the deployment that an existing inventory must belong to; without it, a missing inventory is
    created, unless `create` is false.
    """
    return SqlInventory(Database(url, expected=expected, create=create))
