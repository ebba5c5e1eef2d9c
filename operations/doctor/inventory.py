"""The inventory's database: its release, clock, encryption, connections and place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from operations.doctor.line import Line, clock, line
from pipeline.inventory import database_facts

if TYPE_CHECKING:
    from pipeline.settings import Settings

TESTED = range(14, 19)
"""Releases of PostgreSQL."""

NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "ceph", "gluster", "lustre", "9p")
"""The beginning of the names of file systems that several hosts share: SQLite's locks do not hold there."""

SERVERS = "(install.md#servers)"


def database(settings: Settings) -> Iterator[Line]:
    facts = database_facts.read(settings.inventory)
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
