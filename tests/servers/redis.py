"""A Redis or Valkey server as a child process on a free port."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entrypoints.stack import redis
from entrypoints.stack.child import Command, Process
from entrypoints.stack.ports import free_ports
from tests.support.processes import await_ready


class Server:
    def __init__(self, command: Command, port: int) -> None:
        self.process = Process(command)
        self.port = port
        self.url = redis.url(port)

    def start(self) -> None:
        """Start the server, and wait until it has read its data and answers."""
        self.process.start()
        await_ready(self.process, lambda: redis.serves(self.port))


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server with its files in `folder`, until the block ends."""
    (port,) = free_ports(1)
    server = Server(redis.prepare(folder, port), port)
    try:
        server.start()
        yield server
    finally:
        server.process.stop()
