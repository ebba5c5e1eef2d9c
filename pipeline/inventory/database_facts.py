"""What the inventory's database says of itself; nothing is created or written."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from pipeline.errors import ServiceUnreachable
from pipeline.inventory import database

_POSTGRESQL = """
SELECT current_setting('server_version') AS version, extract(epoch FROM clock_timestamp())::float8 AS clock,
       (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) AS encrypted,
       (SELECT count(*) FROM pg_stat_activity) AS connections, current_setting('max_connections')::int AS most
"""


def read(url: str) -> dict[str, Any]:
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
    engine = database.new_engine(parsed.set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            began = time.time()
            row = dict(connection.exec_driver_sql(_POSTGRESQL).mappings().one())
            ended = time.time()
    except DBAPIError as error:
        raise ServiceUnreachable(f"{place} does not answer: {database.first_line(error)}") from error
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
