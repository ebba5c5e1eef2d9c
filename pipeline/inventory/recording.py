"""Enters a version: object, version, files, ingest, local ids and kernel metadata, in one transaction."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, select, union, update

from pipeline.inventory import ownership
from pipeline.inventory.base import Provenance, Recording
from pipeline.inventory.statements import insert_if_new, insert_new, portions
from pipeline.inventory.tables import (
    collections,
    dublin_kernels,
    events,
    files,
    fixities,
    ingests,
    memberships,
    objects,
    owners,
    versions,
)
from pipeline.outcome import content, system
from pipeline.records import now

FILES_PER_STATEMENT = 5_000
"""Rows of one executemany; more rows were not faster, and need more memory."""

_METADATA = {"mrt-erc.txt", "mrt-dc.xml", "mrt-dublincore.xml"}
"""Files that describe the object; all other files are data."""

_SOURCES = ("producer", "system")


REBUILT = "metadata modification"
"""The type of the event of an entry that was made from storage, in PREMIS's vocabulary of events."""


_ENTRY = select(ingests.c.job_id, versions.c.ark, versions.c.number).join(
    versions, versions.c.id == ingests.c.inv_version_id
)

_ENTRIES = union(
    _ENTRY.where(ingests.c.job_id == bindparam("jid")),
    _ENTRY.where(versions.c.inv_object_id == bindparam("object"), versions.c.number == bindparam("number")),
)
"""Of a job, and of a number: an OR over two tables would scan both."""

_VERSION = versions.insert().returning(versions.c.id)
_FILES, _KERNELS, _INGESTS = files.insert(), dublin_kernels.insert(), ingests.insert()

_LOCKED_OBJECT = select(objects).where(objects.c.ark == bindparam("ark")).with_for_update()


@cache
def _ids(table: Table) -> Select[Any]:
    return select(table.c.id).where(table.c.ark == bindparam("ark"))


def enter(connection: Connection, recording: Recording, rebuilt_by: str = "") -> None:
    """Enter the version unless this job has entered it; StepFailed if its number belongs to another job.

    `rebuilt_by`: who makes the entry from storage, for an event of the object.
    """
    object_id = _object(connection, recording)
    if object_id is None:
        return
    ownership.reserve_local_ids(connection, recording.owner, recording.version.ark, recording.local_id)
    _collections(connection, recording, object_id)
    version_id = _version(connection, recording, object_id)
    own = {"inv_object_id": object_id, "inv_version_id": version_id}
    for portion in portions(_files(recording, own), FILES_PER_STATEMENT):
        connection.execute(_FILES, portion)
    if kernel := list(_kernel(recording, own)):
        connection.execute(_KERNELS, kernel)
    connection.execute(_INGESTS, {**own, **_ingest(recording)})
    if rebuilt_by:
        connection.execute(events.insert(), _rebuilt(recording, object_id, rebuilt_by))


def _rebuilt(recording: Recording, object_id: int, by: str) -> dict[str, Any]:
    """No notice is sent of this event."""
    at = now()
    return {
        "inv_object_id": object_id,
        "type": REBUILT,
        "at": at,
        "agent": by,
        "outcome": "pass",
        "damaged": 0,
        "detail": [],
        "version": recording.version.number,
        "reported": at,
    }


def _id_of(connection: Connection, table: Table, ark: str) -> int:
    for _ in range(2):
        row_id = connection.scalar(_ids(table), {"ark": ark})
        if row_id is not None:
            return int(row_id)
        insert_new(connection, table, [{"ark": ark}])
    raise AssertionError(f"{ark} was entered in {table.name} and is not there")


def _object(connection: Connection, recording: Recording) -> int | None:
    """Create or update the object's row and lock it: versions of an object are entered one at a time.

    None if the version is entered already; nothing of it is judged or changed then.
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
            "mime_type": recording.mime_types.get(file.path, "application/octet-stream"),
            "digest_type": "sha-512",
            "digest_value": file.sha512,
            "created": created,
            **_provenance(recording.provenance.get(file.path)),
        }


def _provenance(of: Provenance | None) -> dict[str, str | None]:
    """The same columns in every row, as executemany needs them."""
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
    }
