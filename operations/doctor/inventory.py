"""The inventory's database: its release, clock, encryption, connections and place."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from operations.doctor.line import Line, clock, line
from pipeline.errors import ServiceUnreachable
from pipeline.inventory.engine import first_line, new_engine

if TYPE_CHECKING:
    from pipeline.settings import Settings

TESTED = range(14, 19)
"""Releases of PostgreSQL."""

NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "ceph", "gluster", "lustre", "9p")
"""The beginning of the names of file systems that several hosts share: SQLite's locks do not hold there."""

SERVERS = "(install.md#servers)"

_POSTGRESQL = """
SELECT current_setting('server_version') AS version, extract(epoch FROM clock_timestamp())::float8 AS clock,
       (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted,
       (SELECT count(*) FROM pg_stat_activity) AS connections, current_setting('max_connections')::int AS most
"""


def database(settings: Settings) -> Iterator[Line]:
    facts = _facts(settings.inventory)
    old = facts["product"] == "PostgreSQL" and facts["release"] not in TESTED
    step = f"use PostgreSQL {TESTED[0]} to {TESTED[-1]} {SERVERS}"
    yield line("version", f"{facts['product']} {facts['version']}", step, warn=old)
    kind = facts.get("system", "")
    fact = f"{facts['place']}{f' on {kind}' if kind else ''}"
    step = f"use PostgreSQL: the locks of SQLite do not hold there {SERVERS}"
    yield line("place", fact, step, wrong=kind.startswith(NETWORK))
    if facts["product"] == "SQLite":
        return
    yield clock("clock", *facts["clock"])
    fact = "this connection is encrypted" if facts["encrypted"] else "this connection is in clear text"
    step = "add ?sslmode=verify-full&sslrootcert=FILE to ARKLINE_INVENTORY_URL (production.md#certificates)"
    yield line("tls", fact, step, warn=not facts["encrypted"])
    used, most = facts["connections"], facts["most"]
    yield line(
        "connections", f"{used:,} of {most:,}", f"raise max_connections {SERVERS}", warn=used > 0.8 * most
    )


def _facts(url: str) -> dict[str, Any]:
    """`product`, `version`, `place` without the password, major `release`; of SQLite the file `system`.

    Of PostgreSQL `clock`, a difference and its uncertainty in seconds, `encrypted`, `connections` and the
    `most` of them; ServiceUnreachable if it does not answer.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        place, version = parsed.database or "", sqlite3.sqlite_version
        kind = _file_system_of(Path(place))
        return {"product": "SQLite", "version": version, "release": 3, "place": place, "system": kind}
    place = parsed.render_as_string(hide_password=True)
    engine = new_engine(parsed.set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            began = time.time()
            row = dict(connection.exec_driver_sql(_POSTGRESQL).mappings().one())
            ended = time.time()
    except DBAPIError as error:
        raise ServiceUnreachable(f"{place} does not answer: {first_line(error)}") from error
    finally:
        engine.dispose()
    row["clock"] = row["clock"] - (began + ended) / 2, (ended - began) / 2
    return {**row, "product": "PostgreSQL", "place": place, "release": int(row["version"].partition(".")[0])}


def _file_system_of(path: Path) -> str:
    """The type of the file system that has the path: `ext4`, `nfs4`; empty where the system does not say."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = {str(parent) for parent in (path, *path.parents)}
    return max(((len(place), kind) for _, place, kind, *_ in mounts if place in above), default=(0, ""))[1]
