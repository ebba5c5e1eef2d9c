"""Injects faults into the disks and the inventory."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url

from tools.chaos.faults import Effect, FaultContext, NotNow, Table, job_folders, kind_of
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""Kind of fault -> function that injects it."""


@kind_of(BEGIN, Kind.WORKING_FULL, Kind.STORAGE_FULL)
def _fill(context: FaultContext, fault: Fault, late: bool) -> Effect:
    name = "working" if fault.kind is Kind.WORKING_FULL else "storage"
    filler = context.cluster.fillers[name]
    release = context.claim(name, filler.remove)
    return Effect(f"{filler.fill() >> 20} MB", release)


@kind_of(BEGIN, Kind.STORAGE_READ_ONLY, Kind.STORAGE_MISSING, Kind.WORKING_MISSING)
def _take_disk(context: FaultContext, fault: Fault, late: bool) -> Effect:
    name = "working" if fault.kind is Kind.WORKING_MISSING else "storage"
    disk = context.cluster.disks[name]
    release = context.claim(name, disk.restore)
    taken = disk.make_read_only() if fault.kind is Kind.STORAGE_READ_ONLY else disk.hide()
    if not taken:
        release()
        raise NotNow
    return Effect(name, release)


@kind_of(BEGIN, Kind.WORKING_LOST)
def _lose_content(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Remove the content of every job, as if the disk had been replaced; later writes stay."""
    if "working" in context.claimed:
        raise NotNow
    folders = job_folders(context.cluster.settings.working)
    if not folders and not late:
        raise NotNow
    for folder in folders:
        context.operator.acts.lost_folders.add(folder.name)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another job has content there
            folder.parent.rmdir()
    return Effect(f"the content of {len(folders)} jobs")


@kind_of(BEGIN, Kind.INVENTORY_LOCKED, Kind.INVENTORY_OUTAGE)
def _take_inventory(context: FaultContext, fault: Fault, late: bool) -> Effect:
    file = Path(make_url(context.cluster.settings.inventory).database or "")
    how = 0 if fault.kind is Kind.INVENTORY_LOCKED else fault.target % 3
    name, take = _WAYS[how]
    if "inventory" in context.claimed:
        raise NotNow
    return Effect(name, context.claim("inventory", take(file)))


def _lock(file: Path) -> Callable[[], None]:
    connection = sqlite3.connect(file, timeout=0.5, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        connection.close()
        raise NotNow from None

    def release() -> None:
        connection.rollback()
        connection.close()

    return release


def _remove(file: Path) -> Callable[[], None]:
    """Move the file, and SQLite's files beside it, to another folder until the fault ends."""
    away = file.parent / "inventory-away"
    away.mkdir(exist_ok=True)
    for part in _parts(file):
        part.rename(away / part.name)

    def bring_back() -> None:
        for part in _parts(file):
            part.unlink()
        for part in _parts(away / file.name):
            part.rename(file.parent / part.name)

    return bring_back


def _replace(file: Path) -> Callable[[], None]:
    """Put an empty database in its place, as if another's backup had been restored."""
    bring_back = _remove(file)
    sqlite3.connect(file).execute("create table other (id integer)").connection.close()
    return bring_back


def _parts(file: Path) -> list[Path]:
    """The database, its write-ahead log and the log's index."""
    return [part for suffix in ("", "-wal", "-shm") if (part := file.with_name(file.name + suffix)).exists()]


_WAYS: tuple[tuple[str, Callable[[Path], Callable[[], None]]], ...] = (
    ("BEGIN EXCLUSIVE", _lock),
    ("no file", _remove),
    ("another file", _replace),
)
