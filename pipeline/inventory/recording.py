"""Entering one version: object, version, files, ingest, local ids and kernel metadata, all or nothing."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Table, select, update

from pipeline.inventory import localids
from pipeline.inventory.base import Provenance, Recording
from pipeline.inventory.statements import insert, insert_new, portions
from pipeline.inventory.tables import (
    collections,
    dublin_kernels,
    files,
    ingests,
    memberships,
    objects,
    owners,
    versions,
)
from pipeline.outcome import content, system

FILES_AT_A_TIME = 5_000
"""Rows of one executemany: more measured no faster, and each takes memory."""

_METADATA = {"mrt-erc.txt", "mrt-dc.xml", "mrt-dublincore.xml"}
"""Files that describe the object; all others are its data."""

_SOURCES = ("producer", "system")


def enter(connection: Connection, recording: Recording) -> None:
    """Enter the version unless this job already did; StepFailed if another job or owner has its place."""
    object_id = _object(connection, recording)
    if _entered(connection, recording, object_id):
        return
    localids.reserve(connection, recording.owner, recording.version.ark, recording.local_id)
    _collections(connection, recording, object_id)
    version_id = _version(connection, recording, object_id)
    own = {"inv_object_id": object_id, "inv_version_id": version_id}
    for portion in portions(_files(recording, own), FILES_AT_A_TIME):
        connection.execute(files.insert(), portion)
    if kernel := list(_kernel(recording, own)):
        connection.execute(dublin_kernels.insert(), kernel)
    connection.execute(ingests.insert(), {**own, **_ingest(recording)})


def _id_of(connection: Connection, table: Table, ark: str) -> int:
    for _ in range(2):
        found = connection.scalar(select(table.c.id).where(table.c.ark == ark))
        if found is not None:
            return int(found)
        insert_new(connection, table, [{"ark": ark}])
    raise AssertionError(f"{ark} was entered in {table.name} and is not there")


def _object(connection: Connection, recording: Recording) -> int:
    """The object's row, made or brought up to date, and locked: its versions are entered one at a time."""
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
    insert_new(connection, objects, [new])
    row = connection.execute(select(objects).where(objects.c.ark == version.ark).with_for_update()).one()
    if row.inv_owner_id != owner_id:
        raise content(f"{version.ark} belongs to another owner than {recording.owner}")
    # versions may be recorded out of order: an older one does not describe the object as it is now
    changes: dict[str, Any] = described if version.number > row.version_number else {}
    if version.created < row.created:
        changes = {**changes, "created": version.created}
    if changes:
        connection.execute(update(objects).where(objects.c.id == row.id).values(changes))
    return int(row.id)


def _entered(connection: Connection, recording: Recording, object_id: int) -> bool:
    """True if this job's version is there; refuses if the job or the version's number is another's."""
    version = recording.version
    entries = select(ingests.c.job_id, versions.c.ark, versions.c.number).join(
        versions, versions.c.id == ingests.c.inv_version_id
    )
    # two queries: an OR over both tables would be answered by reading all of them
    of_job = entries.where(ingests.c.job_id == recording.jid)
    of_number = entries.where(versions.c.inv_object_id == object_id, versions.c.number == version.number)
    found = {tuple(row) for query in (of_job, of_number) for row in connection.execute(query)}
    for jid, ark, number in sorted(found - {(recording.jid, version.ark, version.number)}):
        raise system(
            f"the inventory has version {number} of {ark} from job {jid}, but storage says that "
            f"job {recording.jid} made version {version.number} of {version.ark}: compare the two"
        )
    return bool(found)


def _collections(connection: Connection, recording: Recording, object_id: int) -> None:
    ids = [_id_of(connection, collections, ark) for ark in sorted(set(recording.collections))]
    rows = [{"inv_collection_id": each, "inv_object_id": object_id} for each in ids]
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
    made = connection.execute(insert(connection, versions).returning(versions.c.id), row)
    return int(made.scalar_one())


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
            **_arrival(recording.arrivals.get(file.path)),
        }


def _arrival(arrival: Provenance | None) -> dict[str, str | None]:
    """The same columns in every row, as one executemany needs them."""
    return {
        "landed_digest": arrival.sha512 if arrival else None,
        "source_digest": arrival.digest if arrival else None,
        "source_declared_by": arrival.declared_by or None if arrival else None,
        "source_container": arrival.container or None if arrival else None,
        "source_url": arrival.url or None if arrival else None,
    }


def _kernel(recording: Recording, own: dict[str, int]) -> Iterator[dict[str, Any]]:
    places = 0
    for number, (element, value) in enumerate(recording.erc, start=1):
        qualifier = None
        if element == "where":
            # the object's own identifier comes first, the depositor's after it
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
        "user_agent": recording.submitter,
        "submitted": recording.submitted,
        "storage_url": recording.version.url,
        "landed": recording.landed,
        "verified": recording.version.verified,
    }
