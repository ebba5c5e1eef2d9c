"""Backup of record and inventory, while the fleet works."""

from collections.abc import Callable
from pathlib import Path

from pipeline import backup_files
from pipeline.backup_files import BackupManifest
from pipeline.deployment import Deployment
from pipeline.inventory.copy import copy_inventory
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.stores import compare, stores_of
from zkstate import record_copy
from zkstate.session import Session

Progress = Callable[[int], None]
"""Called with the number of batches and jobs copied so far."""


class BackupView(Record):
    folder: Path
    manifest: BackupManifest
    inventory_copied: bool
    """False if the inventory is in PostgreSQL, and pg_dump is not on this machine."""


def back_up(
    session: Session, settings: Settings, folder: Path, on_progress: Progress = lambda _: None
) -> BackupView:
    """Write a backup; UsageRefused if the folder exists.

    ServiceDown if the stores do not belong together, before or after they were copied.
    """
    confirmed = _confirm(session, settings)
    stores = stores_of(session, settings)
    manifest = BackupManifest(deployment=confirmed, storage=stores.storage.place if stores.storage else "")
    partial = backup_files.partial_folder(folder)
    batches = jobs = 0
    with (partial / backup_files.RECORD).open("w") as lines:
        for entry in record_copy.read_record(session):
            lines.write(entry.model_dump_json(exclude_defaults=True) + "\n")
            batches += bool(entry.batch and not entry.job and not entry.removed)
            jobs += bool(entry.job and entry.nodes)
            on_progress(batches + jobs)
    # after the record: every job that the copy has as completed is in the copy of the inventory
    copied = copy_inventory(settings.inventory, partial)
    # a store that was replaced while it was copied
    _confirm(session, settings, confirmed)
    manifest = manifest.model_copy(update={"batches": batches, "jobs": jobs})
    return BackupView(
        folder=folder,
        manifest=backup_files.publish(partial, folder, manifest),
        inventory_copied=copied,
    )


def _confirm(session: Session, settings: Settings, known: Deployment | None = None) -> Deployment:
    """The id of all stores; ServiceDown if one of them is absent, of another deployment, or older."""
    confirmed = compare(session, settings, known)
    for fault in confirmed.faults.values():
        raise fault
    return confirmed.deployment
