"""Reads of the inventory: an object with its versions, ingests, identifiers and events; a job's files.

An object's events are fixity checks with a changed outcome, and exports.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, func, select

from pipeline.inventory import embargoes, findings, growth, recording
from pipeline.inventory.base import (
    DamagedFile,
    FileFinding,
    FixityProof,
    InventoryFile,
    InventoryObject,
    InventoryVersion,
    PreservationEvent,
    Provenance,
)
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
from pipeline.records import same_key

LATEST_EVENTS = 20
"""Events in an object's description."""


def describe(
    connection: Connection, ark: str, paths: Collection[str] | None = None
) -> InventoryObject | None:
    """Everything about an object; None if none of its versions is recorded.

    `paths`: only these of its files, since an object may have a million.
    """
    row = connection.execute(
        select(objects, owners.c.ark.label("owner"))
        .join(owners, owners.c.id == objects.c.inv_owner_id)
        .where(objects.c.ark == ark)
    ).one_or_none()
    if row is None:
        return None
    return InventoryObject(
        ark=row.ark,
        owner=row.owner,
        collections=_collections(connection, row.id),
        local_id=recording.local_ids_of(connection, ark),
        object_type=row.object_type,
        object_role=row.role,
        aggregate_role=row.aggregate_role,
        erc=_kernel(connection, row.id, row.version_number),
        created=row.created,
        modified=row.modified,
        versions=_versions(connection, row.id, paths),
        fixity=_fixity(connection, row.id),
        events=_events(connection, row.id, ark),
        embargo=embargoes.of_object(connection, row),
    )


def _fixity(connection: Connection, object_id: int) -> FixityProof | None:
    columns = (fixities.c[field.name] for field in fields(FixityProof))
    row = connection.execute(select(*columns).where(fixities.c.inv_object_id == object_id)).one_or_none()
    return FixityProof(*row) if row else None


def _events(connection: Connection, object_id: int, ark: str) -> tuple[PreservationEvent, ...]:
    query = select(events).where(events.c.inv_object_id == object_id).order_by(events.c.id.desc())
    rows = connection.execute(query.limit(LATEST_EVENTS)).all()
    return tuple(preservation_event(row, ark) for row in reversed(rows))


def preservation_event(row: Row[Any], ark: str) -> PreservationEvent:
    """The event in a row of `inv_events`."""
    own = {
        field.name: getattr(row, field.name) for field in fields(PreservationEvent) if field.name in events.c
    }
    return PreservationEvent(ark=ark, files=tuple(DamagedFile(**file) for file in row.detail), **own)


def _collections(connection: Connection, object_id: int) -> tuple[str, ...]:
    query = (
        select(collections.c.ark)
        .join(memberships, memberships.c.inv_collection_id == collections.c.id)
        .where(memberships.c.inv_object_id == object_id)
        .order_by(collections.c.ark)
    )
    return tuple(connection.scalars(query))


def _kernel(connection: Connection, object_id: int, number: int) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(
        select(dublin_kernels.c.element, dublin_kernels.c.value)
        .join(versions, versions.c.id == dublin_kernels.c.inv_version_id)
        .where(versions.c.inv_object_id == object_id, versions.c.number == number)
        .order_by(dublin_kernels.c.seq_num)
    )
    return tuple((element, value) for element, value in rows)


def _versions(
    connection: Connection, object_id: int, paths: Collection[str] | None
) -> tuple[InventoryVersion, ...]:
    checked = findings.checked(connection, object_id)
    files_of = _files(connection, object_id, checked.in_files, paths)
    rows = connection.execute(
        select(
            versions.c.id,
            versions.c.number,
            versions.c.created,
            versions.c.note,
            ingests.c.job_id.label("jid"),
            ingests.c.batch_id.label("bid"),
            ingests.c.profile,
            ingests.c.user_agent.label("submitter"),
            ingests.c.filename.label("payload_name"),
            ingests.c.submitted,
            ingests.c.storage_url,
            ingests.c.landed.label("downloaded"),
            ingests.c.verified,
            ingests.c.recorded,
        )
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(versions.c.inv_object_id == object_id)
        .order_by(versions.c.number)
    ).mappings()
    return tuple(
        InventoryVersion(
            **{name: value for name, value in row.items() if name != "id"},
            files=tuple(files_of[row["number"]]),
            checks=tuple(checked.runs[row["id"]]),
        )
        for row in rows
    )


def _files(
    connection: Connection,
    object_id: int,
    in_files: Mapping[int, Sequence[FileFinding]],
    paths: Collection[str] | None,
) -> defaultdict[int, list[InventoryFile]]:
    """Version number -> its files, with what was found in them."""
    files_of: defaultdict[int, list[InventoryFile]] = defaultdict(list)
    query = (
        select(files, versions.c.number)
        .join(versions, versions.c.id == files.c.inv_version_id)
        .where(versions.c.inv_object_id == object_id)
        .order_by(versions.c.number, files.c.id)
    )
    rows = connection.execute(query if paths is None else query.where(files.c.pathname.in_(paths)))
    last: dict[tuple[str, str], tuple[FileFinding, ...]] = {}
    for row in rows:
        file = inventory_file(row, in_files.get(row.id, ()))
        if in_files:
            # the same file of an earlier version was checked with that version
            same = file.path, file.digest
            checked = {finding.check for finding in file.findings}
            earlier = (finding for finding in last.get(same, ()) if finding.check not in checked)
            last[same] = (*file.findings, *earlier)
            file = replace(file, findings=last[same])
        files_of[row.number].append(file)
    return files_of


def inventory_file(row: Row[Any], of_checks: Sequence[FileFinding] = ()) -> InventoryFile:
    """The file in a row of `inv_files`."""
    return InventoryFile(
        path=row.pathname,
        size=row.full_size,
        # an empty file is billed for nothing, whether or not this version added it
        added=row.billable_size == row.full_size,
        mime_type=row.mime_type,
        digest=f"{row.digest_type.replace('-', '')}:{row.digest_value}",
        provenance=_provenance(row),
        findings=tuple(of_checks),
    )


def _provenance(row: Row[Any]) -> Provenance | None:
    sha512 = row.landed_digest
    if sha512 is None:
        return None
    return Provenance(
        sha512=sha512,
        digest=row.source_digest,
        declared_by=row.source_declared_by or "",
        container=row.source_container or "",
        url=row.source_url or "",
    )


@dataclass(frozen=True)
class FilesPage:
    """Files of a version, in the order of the inventory."""

    ark: str
    number: int
    total: int
    """Files of the version."""
    files: tuple[InventoryFile, ...]
    last: int | None
    """The key of the last file, after which the next page begins; None if no file follows."""


def files_of_job(connection: Connection, jid: str, limit: int, after: int = 0) -> FilesPage | None:
    """A page of the files of the job's version; None if that version is not recorded."""
    version = connection.execute(
        select(versions.c.id, versions.c.number, objects.c.ark)
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .join(objects, objects.c.id == versions.c.inv_object_id)
        .where(ingests.c.job_id == jid)
    ).one_or_none()
    if version is None:
        return None
    own = files.c.inv_version_id == version.id
    total = connection.scalar(select(func.count()).select_from(files).where(own))
    query = select(files).where(own, files.c.id > after).order_by(files.c.id).limit(limit + 1)
    rows = connection.execute(query).all()
    in_files = findings.findings_between(connection, version.id, rows[0].id, rows[-1].id) if rows else {}
    return FilesPage(
        ark=version.ark,
        number=version.number,
        total=total or 0,
        files=tuple(inventory_file(row, in_files.get(row.id, ())) for row in rows[:limit]),
        last=rows[limit - 1].id if len(rows) > limit else None,
    )


def deposited_files(connection: Connection, keys: Mapping[str, str]) -> dict[str, int]:
    """JID -> the depositor's files in the job's version, if that is recorded; `keys`: of the jobs, by JID."""
    own = and_(files.c.inv_version_id == ingests.c.inv_version_id, growth.DEPOSITED)
    rows = connection.execute(
        select(ingests.c.job_id, ingests.c.job_key, func.count(files.c.id))
        .join(files, own, isouter=True)
        .where(ingests.c.job_id.in_(tuple(keys)))
        .group_by(ingests.c.job_id, ingests.c.job_key)
    )
    return {jid: number for jid, key, number in rows if same_key(key or "", keys[jid])}


FIXITY_CHECK = "fixity check"
DISSEMINATION = "dissemination"
"""Types of events in the Library of Congress's vocabulary; an export is a dissemination."""

PASS, FAIL = "pass", "fail"

KEPT_EXPORTS = 1000
"""Exports and downloads per object that the inventory keeps; the oldest is deleted first."""


def entered_events(connection: Connection, ark: str) -> tuple[PreservationEvent, ...]:
    """All events of the object in the inventory, oldest first."""
    query = (
        select(events)
        .join(objects, objects.c.id == events.c.inv_object_id)
        .where(objects.c.ark == ark)
        .order_by(events.c.id)
    )
    return tuple(preservation_event(row, ark) for row in connection.execute(query))


def enter_export(
    connection: Connection, export: PreservationEvent, same_since: datetime | None = None
) -> None:
    """Enter an export or a download, for which no notice is sent.

    Not entered again if the same agent has an event of the same thing since `same_since`.
    """
    object_id = connection.execute(select(objects.c.id).where(objects.c.ark == export.ark)).scalar_one()
    if same_since is not None:
        names = ("type", "agent", "outcome", "version", "note")
        same = (events.c[name] == getattr(export, name) for name in names)
        of_object = select(events.c.id).where(events.c.inv_object_id == object_id)
        if connection.scalar(of_object.where(events.c.at > same_since, *same).limit(1)) is not None:
            return
    recording.enter_event(connection, object_id, replace(export, reported=export.at))
    exports = (
        select(events.c.id)
        .where(events.c.inv_object_id == object_id, events.c.type == DISSEMINATION)
        .order_by(events.c.id.desc())
    )
    outdated = list(connection.scalars(exports.offset(KEPT_EXPORTS)))
    if outdated:
        connection.execute(delete(events).where(events.c.id.in_(outdated)))
