"""ZooKeeper servers as child processes on free ports: one, or an ensemble of several."""

import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from entrypoints.stack import java, services
from entrypoints.stack.child import HOST, Command, Process, ask, free_ports
from tests.support.certificates import Certificate
from tests.support.polling import eventually
from tests.support.processes import await_ready
from tests.support.requirements import unavailable

_NETTY = ("netty-codec", "netty-resolver", "netty-transport-native-unix-common")
"""The jars that Debian's zookeeper.jar needs for TLS and does not name in its manifest."""


def prepare(
    folder: Path,
    servers: int = 3,
    *,
    tick: int,
    log_folder: Path | None = None,
    heap_mb: int | None = None,
    quick_start: bool = True,
) -> dict[int, Command]:
    """Client port -> the command of the server; several servers are one ensemble."""
    own_server = _quick if quick_start else services.prepare_zookeeper
    numbers = free_ports(3 * servers)
    ports, peers, elections = numbers[:servers], numbers[servers:-servers], numbers[-servers:]
    if servers == 1:
        return {ports[0]: own_server(folder, ports[0], tick=tick, log_folder=log_folder, heap=heap_mb)}
    ensemble = ["initLimit=20", "syncLimit=10", "standaloneEnabled=false"]
    for member, (peer, election) in enumerate(zip(peers, elections, strict=True), start=1):
        ensemble.append(f"server.{member}={HOST}:{peer}:{election}")
    commands = {}
    for member, port in enumerate(ports, start=1):
        own = folder / str(member)
        command = own_server(own, port, tick=tick)
        with (own / "zoo.cfg").open("a") as configuration:
            configuration.write("\n".join([*ensemble, ""]))
        (own / "data" / "myid").write_text(f"{member}\n")
        name = f"zookeeper-{member}"
        log = (log_folder or folder) / f"{name}.log"
        commands[port] = replace(command, name=name, log=log)
    return commands


def _quick(*given: Any, **options: Any) -> Command:
    """A server that runs for seconds: Java compiles once and quickly, and no write waits for fsync.

    A killed server loses nothing: the kernel has its writes.
    """
    command = services.prepare_zookeeper(*given, **options)
    java_program, *rest = command.argv
    quick = ("-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")
    return replace(command, argv=(java_program, *quick, *rest))


def _with_limit(command: Command, max_buffer: int) -> Command:
    java_program, *rest = command.argv
    return replace(command, argv=(java_program, f"-Djute.maxbuffer={max_buffer}", *rest))


def version(port: int) -> tuple[int, ...]:
    """The server's version, for instance (3, 8, 0)."""
    with socket.create_connection((HOST, port), timeout=2) as connection:
        connection.sendall(b"srvr")
        first = connection.makefile("rb").readline().decode(errors="replace")
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", first)
    return tuple(int(part) for part in match.groups()) if match else ()


def is_leader(port: int) -> bool:
    return ask(port, b"srvr", b"Mode: leader")


def hosts(ports: Iterable[int]) -> str:
    return ",".join(f"{HOST}:{port}" for port in ports)


class Server:
    """Running ZooKeeper servers; `hosts` is for clients."""

    def __init__(self, commands: dict[int, Command]) -> None:
        self.processes = tuple(Process(command) for command in commands.values())
        self.ports = tuple(commands)
        self.hosts = hosts(self.ports)

    @property
    def process(self) -> Process:
        """The process of the first server, which is the only one outside an ensemble."""
        return self.processes[0]

    @property
    def port(self) -> int:
        return self.ports[0]

    def leader(self) -> Process:
        """The process of the ensemble's leader, once it answers as such."""

        def leading() -> Process | None:
            servers = zip(self.ports, self.processes, strict=True)
            return next((process for port, process in servers if process.running and is_leader(port)), None)

        return eventually(leading)

    def start(self) -> None:
        """Start every server that is not running, and wait until all answer requests."""
        for process in self.processes:
            if not process.running:
                process.start()
        for process, port in zip(self.processes, self.ports, strict=True):
            await_ready(process, lambda port=port: services.zookeeper_serves(port))  # type: ignore[misc]

    def stop(self) -> None:
        for process in self.processes:
            if process.running:
                process.terminate()
        for process in self.processes:
            process.stop()


@contextmanager
def running(
    folder: Path,
    *,
    servers: int = 1,
    tick: int = 1000,
    heap_mb: int | None = None,
    quick_start: bool = True,
    max_buffer: int | None = None,
) -> Iterator[Server]:
    """ZooKeeper servers with their files below `folder`, until the block ends.

    `heap_mb`: of one server, if not that of the stack. `quick_start`: not as shipped, but for some seconds.
    `max_buffer`: bytes of the largest request, if not ZooKeeper's own limit.
    """
    commands = prepare(folder, servers, tick=tick, heap_mb=heap_mb, quick_start=quick_start)
    if max_buffer is not None:
        commands = {port: _with_limit(command, max_buffer) for port, command in commands.items()}
    server = Server(commands)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def tls_classpath() -> str:
    """The class path of a server with Netty, which TLS needs."""
    classpath = java.find_classpath() or ""
    if str(java.DEBIAN) not in classpath:
        return classpath
    jars = [java.DEBIAN / f"{name}.jar" for name in _NETTY]
    if not all(jar.is_file() for jar in jars):
        unavailable("ZooKeeper's TLS needs Netty: apt-get install libnetty-java")
    return os.pathsep.join((classpath, *map(str, jars)))


@contextmanager
def running_tls(
    folder: Path, own: Certificate, trusted: Path, *, ask_for_certificates: bool
) -> Iterator[str]:
    """A server with TLS on the port that is yielded; its port without TLS only says that the server is ready.

    `trusted`: the authority of the certificates that clients show, if the server asks for them.
    """
    with running_with_both(folder, own, trusted, ask_for_certificates=ask_for_certificates) as (_, secure):
        yield secure


@contextmanager
def running_with_both(
    folder: Path,
    own: Certificate,
    trusted: Path,
    *,
    ask_for_certificates: bool,
    tick: int = 500,
    quick_start: bool = True,
) -> Iterator[tuple[Server, str]]:
    """A server without TLS, and its host and port with TLS."""
    port, secure = free_ports(2)
    environment = {**os.environ, "ZOOKEEPER_CLASSPATH": tls_classpath()}
    own_server = _quick if quick_start else services.prepare_zookeeper
    command = own_server(folder, port, tick=tick, environment=environment)
    settings = {
        "secureClientPort": secure,
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": own.both(),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": trusted,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need" if ask_for_certificates else "none",
    }
    with (folder / "zoo.cfg").open("a") as configuration:
        configuration.writelines(f"{name}={value}\n" for name, value in settings.items())
    server = Server({port: command})
    try:
        server.start()
        yield server, f"{HOST}:{secure}"
    finally:
        server.stop()
