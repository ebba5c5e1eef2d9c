"""Recording of a version in one transaction: object, version, files, ingest, local ids, kernel metadata.

Also the ownership of objects: permanent local ids, minted ARK, owner and collections. An ARK belongs to its
job from the moment it is minted, whatever happens to the record's counter.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, exists, null, select, union, union_all, update

from pipeline import causes
from pipeline.fixity import StoredFile
from pipeline.inventory import findings, growth
from pipeline.inventory.base import PreservationEvent, Provenance, Recording
from pipeline.inventory.columns import distinct_values
from pipeline.inventory.search import index
from pipeline.inventory.search.tokens import Findable
from pipeline.inventory.tables import (
    NAMES_AT_A_TIME,
    collections,
    dublin_kernels,
    events,
    files,
    fixities,
    ingests,
    insert_if_new,
    insert_new,
    local_ids,
    memberships,
    minted_arks,
    objects,
    owners,
    portions,
    rows_with,
    versions,
)
from pipeline.names import local_id_problem
from pipeline.outcome import StepFailed, caused_by, content, system
from pipeline.records import Job, now, reused, same_job


def known_local_ids(connection: Connection, owner: str, names: Sequence[str]) -> dict[str, str]:
    """Local id -> ARK, for this owner's known local ids."""
    query = select(local_ids.c.local_id, local_ids.c.inv_object_ark).where(local_ids.c.inv_owner_ark == owner)
    return {name: ark for name, ark in rows_with(connection, query, local_ids.c.local_id, names)}


def local_ids_of(connection: Connection, ark: str) -> tuple[str, ...]:
    """The object's local ids, in the order recorded."""
    query = select(local_ids.c.local_id).where(local_ids.c.inv_object_ark == ark).order_by(local_ids.c.id)
    return tuple(connection.scalars(query))


def arks_named(connection: Connection, local_id: str) -> tuple[str, ...]:
    """The ARKs with this local id: one per owner that uses the id."""
    owned = distinct_values(connection, local_ids.c.inv_owner_ark)
    return tuple(ark for owner in owned for ark in known_local_ids(connection, owner, [local_id]).values())


def reserve_local_ids(connection: Connection, owner: str, ark: str, ids: Sequence[str]) -> None:
    """Reserve the owner's local ids for `ark`, all or none; called before anything is stored.

    Idempotent. StepFailed(content), naming the id and the other ARK, if a local id belongs to another object,
    or if the object belongs to another owner.
    """
    _check_owner(owner_of(connection, ark), owner, ark)
    _reserve(connection, owner, ark, ids)


@caused_by(causes.IDENTIFIER_INVALID())
def _reserve(connection: Connection, owner: str, ark: str, ids: Sequence[str]) -> None:
    # sorted, so that two jobs with the same ids cannot deadlock
    names = sorted(set(ids))
    if not names:
        return
    for name in names:
        if problem := local_id_problem(name):
            raise content(problem)
    created = now()
    insert_new(
        connection,
        local_ids,
        [
            {"inv_object_ark": ark, "inv_owner_ark": owner, "local_id": name, "created": created}
            for name in names
        ],
    )
    # the insert waited for concurrent transactions with the same ids, so this query's result is final
    for name, named in sorted(known_local_ids(connection, owner, names).items()):
        if named != ark:
            raise belongs_to_another(owner, name, named, ark)


def belongs_to_another(owner: str, local_id: str, named: str, ark: str) -> StepFailed:
    """The owner's local id names another object than `ark`."""
    return content(
        f"the local id '{local_id}' of owner {owner} belongs to {named}, not to {ark}: submit again with "
        "that ARK, or without this local id"
    ).because(causes.IDENTIFIER_REFUSED())


@caused_by(causes.IDENTIFIER_REFUSED())
def _check_owner(current: str | None, owner: str, ark: str) -> None:
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
"""The inventory's data about an ARK."""

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
"""The ARKs that were minted for a job, and the ARK that its version is entered under."""


def known_arks(connection: Connection, arks: Sequence[str]) -> frozenset[str]:
    """Those of the ARKs that name an object, were minted, or have a local id."""
    return frozenset(
        ark
        for portion in portions(dict.fromkeys(arks), NAMES_AT_A_TIME // len(_KNOWN.selects))
        for ark in connection.scalars(_KNOWN, {"arks": portion})
    )


def claim_ark(
    connection: Connection, job: Job, owner: str, ark: str, local_id: Sequence[str], *, unused: bool = False
) -> bool:
    """Enter the ARK as minted for the job, with its local ids; False if another job has the ARK.

    `unused`: nothing is stored under the ARK, so an ARK that the inventory knows belongs to another job.
    StepFailed(content) if its object belongs to another owner.
    """
    claimed = _claim(connection, job, owner, ark, unused=unused)
    if claimed:
        _reserve(connection, owner, ark, local_id)
    return claimed


def _claim(connection: Connection, job: Job, owner: str, ark: str, *, unused: bool) -> bool:
    key = job.configuration.key
    standing = connection.execute(_STANDING, {"ark": ark}).one()
    if standing.job_id is None and unused and (standing.owner is not None or standing.named):
        return False
    _check_owner(standing.owner, owner, ark)
    if standing.job_id is None:
        minted = {"ark": ark, "job_id": job.jid, "job_key": key, "created": now()}
        if insert_if_new(connection, minted_arks.c.ark, minted) is not None:
            return True
        standing = connection.execute(_STANDING, {"ark": ark}).one()  # another process was faster
    return (standing.job_id, standing.job_key) == (job.jid, key)


def ark_of(connection: Connection, job: Job) -> str | None:
    """The ARK that the job was entered under, or that was minted for it; None if the job is unknown.

    StepFailed(system) if another job with the same number is known.
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
    """Where an object is, with the title and the number of its current version."""

    owner: str
    collections: frozenset[str]
    title: str
    version: int


def owner_of(connection: Connection, ark: str) -> str | None:
    """The ARK of the object's owner; None if the inventory has no such object."""
    return connection.scalar(_OWNER, {"ark": ark})


_PLACEMENTS = (
    select(objects.c.ark, owners.c.ark, objects.c.erc_what, objects.c.version_number, collections.c.ark)
    .join(owners, owners.c.id == objects.c.inv_owner_id)
    .outerjoin(memberships, memberships.c.inv_object_id == objects.c.id)
    .outerjoin(collections, collections.c.id == memberships.c.inv_collection_id)
)


def placements_of(connection: Connection, arks: Sequence[str]) -> dict[str, Placement]:
    """ARK -> placement, for the ARKs that name an object.

    Depositors must not see the titles of objects that are not in their collections.
    """
    members = defaultdict[str, set[str]](set)
    facts: dict[str, tuple[str, str, int]] = {}
    for ark, owner, title, version, collection in rows_with(connection, _PLACEMENTS, objects.c.ark, arks):
        facts[ark] = owner, title, version
        members[ark].add(collection)
    return {
        ark: Placement(owner, frozenset(filter(None, members[ark])), title, version)
        for ark, (owner, title, version) in facts.items()
    }


def placement_of(connection: Connection, ark: str) -> Placement | None:
    return placements_of(connection, (ark,)).get(ark)


FILES_PER_STATEMENT = 5_000
"""Rows per executemany; more rows were not faster and need more memory."""

_METADATA = {"mrt-erc.txt", "mrt-dc.xml", "mrt-dublincore.xml"}
"""Files that describe the object; all other files are data."""

_SOURCES = ("producer", "system")


REBUILT = "metadata modification"
"""The event type, in PREMIS's vocabulary, of an entry that was rebuilt from storage."""


_ENTRY = select(ingests.c.job_id, versions.c.ark, versions.c.number).join(
    versions, versions.c.id == ingests.c.inv_version_id
)

_ENTRIES = union(
    _ENTRY.where(ingests.c.job_id == bindparam("jid")),
    _ENTRY.where(versions.c.inv_object_id == bindparam("object"), versions.c.number == bindparam("number")),
)
"""The entries of a job and of a version number, as a union: an OR over two tables would scan both."""

_VERSION = versions.insert().returning(versions.c.id)
_FILES, _KERNELS, _INGESTS = files.insert(), dublin_kernels.insert(), ingests.insert()
_INDEXED = _INGESTS.values(index_number=index.INDEXED)

_LOCKED_OBJECT = select(objects).where(objects.c.ark == bindparam("ark")).with_for_update()


@cache
def _ids(table: Table) -> Select[Any]:
    return select(table.c.id).where(table.c.ark == bindparam("ark"))


def enter(connection: Connection, recording: Recording, rebuilt_by: str = "") -> None:
    """Enter the version unless this job has already; StepFailed if the number belongs to another job.

    `rebuilt_by`: who rebuilds the entry from storage, for the object's event.
    """
    object_id = _object(connection, recording)
    if object_id is None:
        if recording.checks:  # of a worker that knew no checks, or of an earlier attempt
            findings.add_checks(connection, recording.version.ark, recording.version.number, recording.checks)
        return
    _reserve(connection, recording.owner, recording.version.ark, recording.local_id)
    _collections(connection, recording, object_id)
    version_id = _version(connection, recording, object_id)
    own = {"inv_object_id": object_id, "inv_version_id": version_id}
    for portion in portions(_files(recording, own), FILES_PER_STATEMENT):
        connection.execute(_FILES, portion)
    if kernel := list(_kernel(recording, own)):
        connection.execute(_KERNELS, kernel)
    ingest = _ingest(recording)
    # a version without a depositor is left to the scheduled work, which may find it
    connection.execute(_INDEXED if ingest["depositor"] else _INGESTS, {**own, **ingest})
    index.enter(connection, object_id, _findable(recording, ingest))
    identified = findings.enter_first_runs(connection, object_id, version_id, recording.checks)
    growth.enter_recorded(connection, recording, identified)
    scheduled = {"inv_object_id": object_id, "profile": recording.profile, "since": recording.version.created}
    insert_new(connection, fixities, [scheduled])
    if rebuilt_by:
        version, at = recording.version, now()
        rebuilt = PreservationEvent(
            id=0,
            ark=version.ark,
            type=REBUILT,
            at=at,
            agent=rebuilt_by,
            outcome="pass",
            damaged=0,
            files=(),
            version=version.number,
            reported=at,  # no notice is sent for this event
        )
        enter_event(connection, object_id, rebuilt)


def enter_event(connection: Connection, object_id: int, event: PreservationEvent) -> None:
    row = {name: value for name, value in asdict(event).items() if name in events.c and name != "id"}
    connection.execute(
        events.insert(), {"inv_object_id": object_id, "detail": list(map(asdict, event.files)), **row}
    )


def _id_of(connection: Connection, table: Table, ark: str) -> int:
    for _ in range(2):
        row_id = connection.scalar(_ids(table), {"ark": ark})
        if row_id is not None:
            return int(row_id)
        insert_new(connection, table, [{"ark": ark}])
    raise AssertionError(f"{ark} was entered in {table.name} and is not there")


def _object(connection: Connection, recording: Recording) -> int | None:
    """Create or update the object's row and lock it: versions of an object are entered one at a time.

    None if the version is already entered; nothing is then checked or changed.
    """
    version = recording.version
    owner_id = _id_of(connection, owners, recording.owner)
    described = {
        "object_type": recording.object_type,
        "role": recording.object_role,
        "aggregate_role": recording.aggregate_role,
        "version_number": version.number,
        "modified": version.created,
        **_erc_columns(recording),
    }
    new = {"ark": version.ark, "inv_owner_id": owner_id, "created": version.created, **described}
    inserted = insert_if_new(connection, objects.c.id, new)
    if inserted is not None:
        return None if _entered(connection, recording, int(inserted)) else int(inserted)
    row = connection.execute(_LOCKED_OBJECT, {"ark": version.ark}).one()
    if _entered(connection, recording, int(row.id)):
        return None
    if row.inv_owner_id != owner_id:
        raise content(f"{version.ark} does not belong to the owner {recording.owner}, but to another")
    # versions may be recorded out of order: an older version must not replace the current description
    changes: dict[str, Any] = described if version.number > row.version_number else {}
    if version.created < row.created:
        changes = {**changes, "created": version.created}
    if changes:
        connection.execute(update(objects).where(objects.c.id == row.id).values(changes))
    if version.number > row.version_number:
        schedule = update(fixities).where(fixities.c.inv_object_id == row.id)
        connection.execute(schedule.values(profile=recording.profile))
    return int(row.id)


def _entered(connection: Connection, recording: Recording, object_id: int) -> bool:
    """True if the job's version is entered; StepFailed if the job or the number has another entry."""
    version = recording.version
    values = {"jid": recording.jid, "object": object_id, "number": version.number}
    entered = {tuple(row) for row in connection.execute(_ENTRIES, values)}
    for jid, ark, number in sorted(entered - {(recording.jid, version.ark, version.number)}):
        raise system(
            f"the inventory has version {number} of {ark} from job {jid}, but storage says that "
            f"job {recording.jid} made version {version.number} of {version.ark}: compare the two"
        )
    return bool(entered)


def _collections(connection: Connection, recording: Recording, object_id: int) -> None:
    ids = [_id_of(connection, collections, ark) for ark in sorted(set(recording.collections))]
    rows = [{"inv_collection_id": collection_id, "inv_object_id": object_id} for collection_id in ids]
    insert_new(connection, memberships, rows)


def _version(connection: Connection, recording: Recording, object_id: int) -> int:
    version = recording.version
    row = {
        "inv_object_id": object_id,
        "ark": version.ark,
        "number": version.number,
        "note": recording.note,
        "created": version.created,
    }
    return int(connection.execute(_VERSION, row).scalar_one())


def _files(recording: Recording, own: dict[str, int]) -> Iterator[dict[str, Any]]:
    created = recording.version.created
    for file in recording.version.files:
        source, _, rest = file.path.partition("/")
        yield {
            **own,
            "pathname": file.path,
            "source": source if source in _SOURCES else "consumer",
            "role": "metadata" if rest in _METADATA else "data",
            "full_size": file.size,
            "billable_size": file.size if file.added else 0,
            "mime_type": recording.type_of(file),
            "digest_type": "sha-512",
            "digest_value": file.sha512,
            "created": created,
            **_provenance(recording.provenance.get(file.path)),
        }


def _provenance(of: Provenance | None) -> dict[str, str | None]:
    """The columns of the provenance; executemany needs the same ones in every row."""
    return {
        "landed_digest": of.sha512 if of else None,
        "source_digest": of.digest if of else None,
        "source_declared_by": of.declared_by or None if of else None,
        "source_container": of.container or None if of else None,
        "source_url": of.url or None if of else None,
    }


def _kernel(recording: Recording, own: dict[str, int]) -> Iterator[dict[str, Any]]:
    places = 0
    for number, (element, value) in enumerate(recording.erc, start=1):
        qualifier = None
        if element == "where":
            # the object's own identifier comes first, then the depositor's
            qualifier = "local" if places else "primary"
            places += 1
        yield {**own, "seq_num": number, "element": element, "qualifier": qualifier, "value": value}


def _erc_columns(recording: Recording) -> dict[str, str]:
    return {
        f"erc_{element}": "; ".join(value for name, value in recording.erc if name == element)
        for element in ("who", "what", "when", "where")
    }


def _findable(recording: Recording, ingest: dict[str, Any]) -> Findable:
    return Findable(
        ark=recording.version.ark,
        local_ids=recording.local_id,
        erc=recording.erc,
        texts=(*recording.collections, *index.texts_of(ingest)),
        files=((file.path, _digests(recording, file)) for file in recording.version.files),
        profile=recording.profile,
        depositor=ingest["depositor"],
    )


def _digests(recording: Recording, file: StoredFile) -> tuple[str | None, ...]:
    arrived = recording.provenance.get(file.path)
    return (file.sha512, arrived.sha512, arrived.digest) if arrived else (file.sha512,)


def _ingest(recording: Recording) -> dict[str, Any]:
    return {
        "filename": recording.payload_name,
        "ingest_type": recording.ingest_type,
        "profile": recording.profile,
        "batch_id": recording.bid,
        "job_id": recording.jid,
        "job_key": recording.key or None,
        "user_agent": recording.submitter,
        "submitted": recording.submitted,
        "storage_url": recording.version.url,
        "landed": recording.downloaded,
        "verified": recording.version.verified,
        "recorded": now(),
        "counted": True,
        "depositor": index.known_depositor(recording.depositor),
    }
