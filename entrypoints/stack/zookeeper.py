"""ZooKeeper servers as child processes: one, or an ensemble of several."""

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from entrypoints.stack import java
from entrypoints.stack.child import Command, Process
from entrypoints.stack.ports import HOST, ask, free_ports
from pipeline.errors import ServiceUnreachable

TERMINATED = 143
"""The exit code of Java after SIGTERM: 128 + 15, an orderly end."""

LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger{1} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
"""For the jars of ZooKeeper's own distribution, whose default level is DEBUG."""


class ServerMissing(ServiceUnreachable):
    """A server program is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Plan:
    """The folders and ports of the servers."""

    folder: Path
    log_folder: Path
    ports: tuple[int, ...]
    peers: tuple[tuple[int, int], ...] = ()
    """(peer, election) port of each server of an ensemble; empty for a single server."""
    tick: int = 1000
    """ZooKeeper's tickTime in milliseconds; a session lasts 2 to 20 ticks."""

    @property
    def hosts(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)


def plan(folder: Path, *, servers: int = 1, tick: int = 1000, log_folder: Path | None = None) -> Plan:
    numbers = free_ports(servers * 3)
    peers = tuple(zip(numbers[servers : 2 * servers], numbers[2 * servers :], strict=True))
    return Plan(
        folder=folder.absolute(),
        log_folder=(log_folder or folder).absolute(),
        ports=numbers[:servers],
        peers=peers if servers > 1 else (),
        tick=tick,
    )


def configuration(plan: Plan, number: int) -> str:
    """zoo.cfg of server `number`, counted from 1."""
    lines = [
        f"tickTime={plan.tick}",
        f"dataDir={_home(plan, number) / 'data'}",
        f"clientPort={plan.ports[number - 1]}",
        f"clientPortAddress={HOST}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=ruok,srvr,mntr,envi",
        "maxClientCnxns=0",
        "autopurge.purgeInterval=1",
    ]
    if plan.peers:
        lines += ["initLimit=20", "syncLimit=10", "standaloneEnabled=false"]
        lines += [
            f"server.{server}={HOST}:{peer}:{elect}"
            for server, (peer, elect) in enumerate(plan.peers, start=1)
        ]
    return "\n".join(lines) + "\n"


def prepare(plan: Plan, environment: Mapping[str, str] = os.environ) -> tuple[Command, ...]:
    """Write the servers' files and return the commands that start them."""
    program = java.find(environment)
    if program is None:
        raise ServerMissing(
            "ZooKeeper or Java was not found. On Debian: apt-get install --no-install-recommends "
            "libzookeeper-java default-jre-headless; on macOS: brew install zookeeper; elsewhere: install a "
            "Java, unpack a ZooKeeper distribution and set ZOOKEEPER_HOME to its folder; or set "
            "ARKLINE_ZK_HOSTS to running servers."
        )
    return tuple(_prepare_one(plan, number, program) for number in range(1, len(plan.ports) + 1))


def _prepare_one(plan: Plan, number: int, program: java.Java) -> Command:
    home = _home(plan, number)
    (home / "data").mkdir(parents=True, exist_ok=True)
    (home / "data" / "myid").write_text(f"{number}\n")
    (home / "zoo.cfg").write_text(configuration(plan, number))
    (home / "logback.xml").write_text(LOGBACK)
    name = "zookeeper" if len(plan.ports) == 1 else f"zookeeper-{number}"
    return Command(
        name=name,
        argv=(
            program.program,
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dfile.encoding=UTF-8",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            f"-Dlogback.configurationFile={home / 'logback.xml'}",
            "-cp",
            program.classpath,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(home / "zoo.cfg"),
        ),
        log=plan.log_folder / f"{name}.log",
        clean=frozenset({0, TERMINATED}),
    )


def _home(plan: Plan, number: int) -> Path:
    return plan.folder if len(plan.ports) == 1 else plan.folder / str(number)


def serves(port: int) -> bool:
    """Whether the server answers requests; `ruok` answers even before an ensemble has a leader."""
    return ask(port, b"srvr", b"Mode:")


def version(port: int) -> tuple[int, ...]:
    """The server's version, for instance (3, 8, 0)."""
    with socket.create_connection((HOST, port), timeout=2) as connection:
        connection.sendall(b"srvr")
        first = connection.makefile("rb").readline().decode(errors="replace")
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", first)
    return tuple(int(part) for part in match.groups()) if match else ()


def is_leader(port: int) -> bool:
    return ask(port, b"srvr", b"Mode: leader")


class Server:
    """Running ZooKeeper servers; `hosts` is for clients."""

    def __init__(self, plan: Plan, processes: tuple[Process, ...]) -> None:
        self.plan = plan
        self.processes = processes
        self.hosts = plan.hosts

    @property
    def process(self) -> Process:
        """The process of the first server, which is the only one outside an ensemble."""
        return self.processes[0]

    @property
    def port(self) -> int:
        return self.plan.ports[0]

    def leader(self) -> Process:
        """The process of the ensemble's leader."""
        for port, process in zip(self.plan.ports, self.processes, strict=True):
            if process.running and is_leader(port):
                return process
        raise ServiceUnreachable(f"no server of {self.hosts} is the leader")

    def start(self) -> None:
        """Start every server that is not running, and wait until all answer requests."""
        for process in self.processes:
            if not process.running:
                process.start()
        for process, port in zip(self.processes, self.plan.ports, strict=True):
            await_answer(process, port)

    def stop(self) -> None:
        for process in self.processes:
            if process.running:
                process.terminate()
        for process in self.processes:
            process.stop()


def await_answer(process: Process, port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not serves(port):
        if not process.running:
            raise process.crash_error()
        if time.monotonic() > deadline:
            raise ServiceUnreachable(f"{process.name} on {HOST}:{port} does not answer after {seconds} s")
        time.sleep(0.02)


@contextmanager
def running(folder: Path, *, servers: int = 1, tick: int = 1000) -> Iterator[Server]:
    """ZooKeeper servers with their files below `folder`, until the block ends."""
    chosen = plan(folder, servers=servers, tick=tick)
    server = Server(chosen, tuple(Process(command) for command in prepare(chosen)))
    try:
        server.start()
        yield server
    finally:
        server.stop()
