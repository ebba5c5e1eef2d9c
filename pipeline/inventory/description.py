"""Reads an object from the inventory: its versions, files, ingests and identifiers."""

from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from pipeline.inventory import localids
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion, Provenance
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


def describe(connection: Connection, ark: str) -> InventoryObject | None:
    """Everything about an object; None if no version of it was recorded."""
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
        collections=_values(
            connection,
            select(collections.c.ark)
            .join(memberships, memberships.c.inv_collection_id == collections.c.id)
            .where(memberships.c.inv_object_id == row.id)
            .order_by(collections.c.ark),
        ),
        local_id=localids.of_object(connection, ark),
        object_type=row.object_type,
        object_role=row.role,
        aggregate_role=row.aggregate_role,
        erc=_kernel(connection, row.id, row.version_number),
        created=row.created,
        modified=row.modified,
        versions=_versions(connection, row.id),
    )


def _values(connection: Connection, query: Select[tuple[str]]) -> tuple[str, ...]:
    return tuple(connection.scalars(query))


def _kernel(connection: Connection, object_id: int, number: int) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(
        select(dublin_kernels.c.element, dublin_kernels.c.value)
        .join(versions, versions.c.id == dublin_kernels.c.inv_version_id)
        .where(versions.c.inv_object_id == object_id, versions.c.number == number)
        .order_by(dublin_kernels.c.seq_num)
    )
    return tuple((element, value) for element, value in rows)


def _versions(connection: Connection, object_id: int) -> tuple[InventoryVersion, ...]:
    files_of = _files(connection, object_id)
    rows = connection.execute(
        select(
            versions.c.id.label("version_id"), versions.c.number, versions.c.created, versions.c.note, ingests
        )
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(versions.c.inv_object_id == object_id)
        .order_by(versions.c.number)
    )
    return tuple(_version(row, tuple(files_of[row.version_id])) for row in rows)


def _version(row: Row[Any], version_files: tuple[InventoryFile, ...]) -> InventoryVersion:
    return InventoryVersion(
        number=row.number,
        created=row.created,
        note=row.note,
        jid=row.job_id,
        bid=row.batch_id,
        profile=row.profile,
        submitter=row.user_agent,
        payload_name=row.filename,
        submitted=row.submitted,
        storage_url=row.storage_url,
        downloaded=row.landed,
        verified=row.verified,
        files=version_files,
    )


def _files(connection: Connection, object_id: int) -> defaultdict[int, list[InventoryFile]]:
    files_of: defaultdict[int, list[InventoryFile]] = defaultdict(list)
    rows = connection.execute(
        select(files)
        .join(versions, versions.c.id == files.c.inv_version_id)
        .where(versions.c.inv_object_id == object_id)
        .order_by(files.c.id)
    )
    for row in rows:
        files_of[row.inv_version_id].append(
            InventoryFile(
                path=row.pathname,
                size=row.full_size,
                # an empty file is billed nothing, whether or not this version added it
                added=row.billable_size == row.full_size,
                mime_type=row.mime_type,
                digest=f"{row.digest_type.replace('-', '')}:{row.digest_value}",
                provenance=_provenance(row),
            )
        )
    return files_of


def _provenance(row: Row[Any]) -> Provenance | None:
    if row.landed_digest is None:
        return None
    return Provenance(
        sha512=row.landed_digest,
        digest=row.source_digest,
        declared_by=row.source_declared_by or "",
        container=row.source_container or "",
        url=row.source_url or "",
    )
