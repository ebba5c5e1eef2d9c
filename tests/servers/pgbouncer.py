"""PgBouncer before a PostgreSQL server: each transaction gets any connection of a small pool."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from entrypoints.stack.child import HOST, Command, Process, free_ports
from tests.servers import postgresql
from tests.support.processes import await_ready
from tests.support.requirements import program

CONFIGURATION = """
[databases]
* = host={host} port={server} user=arkline
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""


@contextmanager
def before(server: postgresql.Server) -> Iterator[str]:
    """The SQLAlchemy URL of a new database of `server`, through the pool."""
    (port,) = free_ports(1)
    # not pytest's folder: that is closed to the user nobody, and PgBouncer refuses to be root
    folder = Path(tempfile.mkdtemp(prefix="arkline-pgbouncer-"))
    folder.chmod(0o755)
    file = folder / "pgbouncer.ini"
    file.write_text(CONFIGURATION.format(host=HOST, server=server.port, port=port))
    own = () if os.geteuid() else ("-u", "nobody")
    pool = Process(Command("pgbouncer", (program("pgbouncer", "pgbouncer"), *own, str(file)), folder / "log"))
    pool.start()
    try:
        await_ready(pool, lambda: _accepts(port))
        yield server.new_database().replace(f":{server.port}/", f":{port}/")
    finally:
        pool.stop()
        shutil.rmtree(folder)


def _accepts(port: int) -> bool:
    with suppress(ConnectionError):
        socket.create_connection((HOST, port)).close()
        return True
    return False
