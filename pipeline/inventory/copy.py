"""A consistent copy of an inventory that other processes are writing to, and its restore."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from pipeline.backup_files import INVENTORY, POSTGRESQL_INVENTORY
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.file_system import make_synced, sync
from pipeline.inventory.database import Database

PAGES = 1_000
"""Pages per step of the copy; other processes can write between two steps."""

_BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""


def copy_inventory(url: str, folder: Path) -> bool:
    """Copy the database; False if it is in PostgreSQL and this machine has no pg_dump.

    ServiceUnreachable if the database cannot be read.
    """
    file = _sqlite_file(url)
    if file is not None:
        _copy_sqlite(file, folder / INVENTORY)
        return True
    program = shutil.which("pg_dump")
    if program is None:
        return False
    _run(
        (program, "--format=custom", "--no-owner", "--no-privileges", "--file"),
        folder / POSTGRESQL_INVENTORY,
        url,
    )
    return True


def check_absent(url: str) -> None:
    """UsageRefused if there is an inventory at the URL, or a remnant of one."""
    file = _sqlite_file(url)
    database = Database(url)
    places = [file, *(file.with_name(f"{file.name}{end}") for end in _BESIDE)] if file else []
    present = [str(place) for place in places if place.exists()]
    if present:
        raise UsageRefused(f"the inventory is not lost: move {' and '.join(present)} away first")
    if file is None and database.exists():
        raise UsageRefused(
            f"the inventory {database.name} is not lost: it has tables; name an empty database first "
            "(ARKLINE_INVENTORY_URL)"
        )


def restore_inventory_copy(url: str, folder: Path) -> None:
    """Restore the copy from the backup: a file gets its name once complete, a server all tables at once.

    UsageRefused if the backup has no copy for this kind of database, or this machine no pg_restore.
    """
    file = _sqlite_file(url)
    copy = folder / (POSTGRESQL_INVENTORY if file is None else INVENTORY)
    if not copy.is_file():
        raise UsageRefused(
            f"{folder} has no {copy.name}: restore the inventory by the method by which it was copied"
        )
    if file is not None:
        _place(copy, file)
        return
    program = shutil.which("pg_restore")
    if program is None:
        raise UsageRefused(
            f"pg_restore is not on this machine: install PostgreSQL's client programs, or restore {copy} on "
            "a machine that has them"
        )
    _run((program, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"), copy, url)


def _sqlite_file(url: str) -> Path | None:
    """The file of an inventory in SQLite; None if the inventory is on a server."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _copy_sqlite(file: Path, copy: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as live,
            closing(sqlite3.connect(copy)) as to,
        ):
            live.backup(to, pages=PAGES)
    except sqlite3.Error as error:
        raise ServiceUnreachable(
            f"the inventory {file} could not be copied to {copy}: {error}; check that both disks are mounted "
            "and have room, and repeat the backup"
        ) from error


def _place(copy: Path, file: Path) -> None:
    make_synced(file.parent)
    partial = file.with_name(f"{file.name}.restoring")
    shutil.copyfile(copy, partial)
    sync(partial)
    partial.rename(file)
    sync(file.parent)


def _run(command: Sequence[str], file: Path, url: str) -> None:
    """Run a PostgreSQL program on the database, with the password kept out of its arguments."""
    parsed = make_url(url)
    password = {"PGPASSWORD": parsed.password} if parsed.password else {}
    address = parsed._replace(drivername="postgresql", password=None).render_as_string(hide_password=False)
    done = subprocess.run(  # noqa: S603 - the PostgreSQL program found on the path
        [*command, str(file), f"--dbname={address}"],
        env={**os.environ, **password},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        name = Path(command[0]).name
        reason = done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
        raise ServiceUnreachable(f"{name} could not finish: {reason}")
