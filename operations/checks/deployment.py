"""The stores of a deployment: initialized with one id, backed up while the fleet works, restored if lost.

Rule: no process works on a restored store before it agrees with the other stores. The marks of record and
inventory differ until then, so every process waits.
"""

import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path

from operations.checks.stores import MARGIN
from operations.site import Site
from pipeline import backup_files
from pipeline.backup_files import BackupManifest, RecordEntry
from pipeline.deployment import Deployment, OutdatedStore, check_marker
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.inventory.copy import check_absent, copy_inventory, restore_inventory_copy
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.records import Record, number_of
from pipeline.storage.base import VersionEntry
from pipeline.storage.factory import open_storage
from tasks.logs import log
from tasks.stores import compare, level_marks, stores_of
from zkstate.care import copy, deployment
from zkstate.care.deployment import join_missing
from zkstate.connection.session import Session
from zkstate.errors import Unreachable
from zkstate.fleet import counters, notes
from zkstate.fleet.notes import LastBackup
from zkstate.fleet.scheduled import leader


class StoreView(Record):
    service: Service
    place: str
    initialized: bool
    """True if the store got the id just now."""


class DeploymentView(Record):
    id: str
    created: datetime
    stores: tuple[StoreView, ...]
    outdated: str = ""
    """Why jobs wait until the stores are reconciled, after `missing` gave an empty inventory the id."""


def initialize(site: Site, *, missing: bool = False) -> DeploymentView:
    """Give one id to record, storage root and inventory if all are empty; compare their ids if they have one.

    `missing`: also give the id to a store that is lost or was made by an earlier release, although others
    have an id. ServiceDown names the store that is absent, foreign or older than the others.
    """
    stores = stores_of(site.session, site.settings)
    before = {store.service: store.read_deployment() for store in stores.every}
    if missing:
        join_missing(stores)
    confirmed = compare(site.session, site.settings)
    outdated = ""
    for fault in confirmed.faults.values():
        if not (missing and isinstance(fault, OutdatedStore)):
            raise ServiceDown(fault.service, fault.message)
        outdated = fault.message
    return DeploymentView(
        id=confirmed.deployment.id,
        created=confirmed.deployment.created,
        stores=tuple(
            StoreView(service=store.service, place=store.place, initialized=before[store.service] is None)
            for store in (stores.record, *stores.kept)
        ),
        outdated=outdated,
    )


Progress = Callable[[int], None]
"""Called with the number of batches and jobs copied so far."""


class BackupView(Record):
    folder: Path
    manifest: BackupManifest
    inventory_copied: bool
    """False if the inventory is in PostgreSQL, and pg_dump is not on this machine."""
    noted: bool = True
    """False if ZooKeeper did not answer at the end."""


def back_up(site: Site, folder: Path, on_progress: Progress = lambda _: None) -> BackupView:
    """Write a backup; UsageRefused if the folder exists, or cannot be written.

    ServiceDown if the stores do not belong together, before or after the copy.
    """
    confirmed = _confirm(site)
    stores = stores_of(site.session, site.settings)
    manifest = BackupManifest(deployment=confirmed, storage=stores.storage.place if stores.storage else "")
    partial = backup_files.partial_folder(folder)
    batches = jobs = 0
    with backup_files.writing(partial), (partial / backup_files.RECORD).open("w") as lines:
        for entry in copy.read_record(site.session):
            lines.write(entry.model_dump_json(exclude_defaults=True) + "\n")
            batches += bool(entry.batch and not entry.job and not entry.removed)
            jobs += bool(entry.job and entry.nodes)
            on_progress(batches + jobs)
    # after the record: every job that is completed in its copy is also in the copy of the inventory
    copied = copy_inventory(site.settings.inventory, partial)
    # a store may have been replaced during the copy
    _confirm(site, confirmed)
    manifest = manifest.model_copy(update={"batches": batches, "jobs": jobs})
    complete = backup_files.publish(partial, folder, manifest)
    note = LastBackup(
        at=complete.began, host=socket.gethostname(), folder=str(folder.absolute()), inventory=copied
    )
    try:
        notes.BACKUP.publish(site.session, note)
        noted = True
    except Unreachable as away:
        log().warning("a backup was not noted in the record", folder=str(folder), message=str(away))
        noted = False
    return BackupView(folder=folder, manifest=complete, inventory_copied=copied, noted=noted)


def _confirm(site: Site, known: Deployment | None = None) -> Deployment:
    """The id that all stores share; ServiceDown if one is absent, of another deployment, or outdated."""
    confirmed = compare(site.session, site.settings, known)
    for fault in confirmed.faults.values():
        raise fault
    return confirmed.deployment


PAGE = 1_000
"""Number of versions in storage that one query compares with the inventory."""

LISTED = 1_000
"""Maximum number of unknown versions that a result lists; all are counted."""


class RestoreView(Record):
    manifest: BackupManifest
    last_job: int
    """Job numbers continue after this one."""
    unknown: int
    """Versions in storage that the inventory neither has nor reserves for a restored job. If there are any,
    the fleet waits for a reconciliation, so that no local id of theirs gets another ARK."""
    listed: tuple[str, ...]
    """The first of them; at most LISTED."""


class InventoryRestoreView(Record):
    manifest: BackupManifest
    place: str
    """Where the inventory is now; it waits for a reconciliation, if there is a record."""


def restore_inventory(site: Site, folder: Path) -> InventoryRestoreView:
    """Restore the inventory from the backup to the place that the settings name.

    UsageRefused if the backup is damaged or has no copy of the inventory, if an inventory exists, or if the
    record belongs to another deployment.
    """
    manifest, session, settings = backup_files.read_manifest(folder), site.session, site.settings
    with copy.alone(session):
        check_absent(settings.inventory)
        record = deployment.read(session)
        if record is not None:
            _check_same(f"the record {session.hosts}{session.root}", record, manifest.deployment)
            # first: the copy is older, even if it was made a moment ago and has nearly the same mark
            deployment.raise_mark(session, record.mark + 2)
        restore_inventory_copy(settings.inventory, folder)
    return InventoryRestoreView(manifest=manifest, place=open_inventory(settings.inventory).place)


def restore(
    site: Site, folder: Path, *, replace: bool = False, on_progress: Progress = lambda _: None
) -> RestoreView:
    """Restore the record from a backup; numbers continue beyond all that inventory and storage know.

    UsageRefused if the backup is damaged, the record is neither empty nor to be replaced, a fleet is running,
    or the inventory is older than the backup. ServiceDown if storage root or inventory is absent or belongs
    to another deployment.
    """
    manifest, session, settings = backup_files.read_manifest(folder), site.session, site.settings
    with copy.alone(session):
        inventory = open_inventory(settings.inventory)
        for store in stores_of(session, settings).kept:
            check_marker(store.service, store.place, store.read_deployment(), manifest.deployment.id)
        marker = inventory.read_deployment()
        _check_age(inventory, marker.mark if marker else 0, manifest, folder)
        _check_record(session, manifest.deployment, replace=replace)
        if replace:
            copy.clear(session)
        removed = frozenset(entry.batch for entry in backup_files.entries(folder) if entry.removed)
        known: set[str] = set()
        # below the inventory's mark: no process works on the record until its numbers are raised
        mark = min(manifest.deployment.mark, marker.mark - 1 if marker else 0)
        behind = manifest.deployment.model_copy(update={"mark": mark})
        copy.write_record(session, _counted(folder, known, on_progress), removed, behind)
        last, unknown, listed = _compare_storage(site, inventory, known)
        last += MARGIN
        counters.raise_to(session, "job", last)
        counters.raise_batches(session, MARGIN, above=inventory.last_batch())
        if not unknown:
            level_marks(session, inventory)
    return RestoreView(manifest=manifest, last_job=last, unknown=unknown, listed=tuple(listed))


def _check_age(inventory: SqlInventory, mark: int, manifest: BackupManifest, folder: Path) -> None:
    """Refuse a record newer than the inventory: it has completed jobs that the inventory does not know."""
    if mark < manifest.deployment.mark - 1:
        raise UsageRefused(
            f"the inventory {inventory.place} is older than the backup {folder} (its mark is {mark}, that of "
            f"the backup {manifest.deployment.mark}): put a newer copy there, or move it away and restore "
            "the inventory of this backup first"
        ).with_remedies(Remedy(Action.RESTORE_INVENTORY, str(folder)))


def _counted(folder: Path, known: set[str], on_progress: Progress) -> Iterator[RecordEntry]:
    for number, entry in enumerate(backup_files.entries(folder), 1):
        if entry.job:
            known.add(entry.job)
        on_progress(number)
        yield entry


def _check_same(place: str, present: Deployment, expected: Deployment) -> None:
    if present.id != expected.id:
        raise UsageRefused(
            f"{place} belongs to deployment {present.id}, the backup to {expected.id}: check "
            "ARKLINE_ZK_HOSTS and ARKLINE_ZK_ROOT, or use a backup of this deployment"
        )


def _check_record(session: Session, expected: Deployment, *, replace: bool) -> None:
    place = f"{session.hosts}{session.root}"
    if name := leader(session):
        raise UsageRefused(f"a fleet is at work on the record {place} (beat runs on {name}): stop it first")
    present = deployment.read(session)
    if present is not None:
        _check_same(f"the record {place}", present, expected)
    if not replace and not copy.is_empty(session):
        raise UsageRefused(
            f"the record {place} is not empty: if it is to be replaced by the backup, add --replace"
        )


def _compare_storage(site: Site, inventory: SqlInventory, known: set[str]) -> tuple[int, int, list[str]]:
    """The last job that a store knows; how many versions only storage has, and the first of them."""
    last, unknown = max(counters.last(site.session, "job"), inventory.last_job()), 0
    listed: list[str] = []
    try:
        versions = open_storage(site.settings).versions()
        while page := tuple(islice(versions, PAGE)):
            last = max(last, *(number_of(version.jid) for version in page))
            for version in _unknown(inventory, page, known):
                unknown += 1
                if len(listed) < LISTED:
                    listed.append(version)
    except UsageRefused:
        pass  # Merritt's storage service cannot list its objects
    return last, unknown, listed


def _unknown(inventory: SqlInventory, page: tuple[VersionEntry, ...], known: set[str]) -> Iterator[str]:
    entered = inventory.entered_jobs([version.jid for version in page])
    missing = [version for version in page if version.problem or version.jid not in entered]
    reserved = inventory.known_arks([version.ark for version in missing if version.jid in known])
    for version in missing:
        if version.problem:
            yield f"{version.ark}: {version.problem}"
        elif version.ark not in reserved:
            yield f"version {version.number} of {version.ark} from job {version.jid or '-'}"
