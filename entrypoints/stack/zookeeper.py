"""A ZooKeeper server as a child process."""

import os
from collections.abc import Mapping
from pathlib import Path

from entrypoints.stack import java
from entrypoints.stack.child import HOST, Command, ask
from pipeline.errors import ServiceUnreachable

TERMINATED = 143
"""The exit code of Java after SIGTERM: 128 + 15, an orderly end."""

MOST_HEAP_MB = 2048
"""Megabytes of heap: the default of ARKLINE_RECORD_JOBS needs 1.4 GB of them (decision 48)."""

LEAST_HEAP_MB = 256
PART_OF_MEMORY = 4
"""The machine's memory divided by this is ZooKeeper's heap."""

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


def heap_mb() -> int:
    """What ZooKeeper may take of this machine; a record with a smaller heap accepts fewer jobs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(LEAST_HEAP_MB, min(MOST_HEAP_MB, memory // PART_OF_MEMORY))


def prepare(
    folder: Path,
    port: int,
    *,
    log_folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    tick: int = 1000,
    heap: int | None = None,
) -> Command:
    """Write the server's files and return the command that starts the server.

    `tick`: ZooKeeper's tickTime in milliseconds; a session lasts 2 to 20 ticks. `heap`: megabytes, if not
    those of `heap_mb`.
    """
    program = java.find(environment)
    if program is None:
        raise ServerMissing(
            "ZooKeeper or Java was not found. On Debian: apt-get install --no-install-recommends "
            "libzookeeper-java default-jre-headless; on macOS: brew install zookeeper; elsewhere: install a "
            "Java, unpack a ZooKeeper distribution and set ZOOKEEPER_HOME to its folder; or set "
            "ARKLINE_ZK_HOSTS to running servers."
        )
    folder = folder.absolute()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    settings = [
        f"tickTime={tick}",
        f"dataDir={folder / 'data'}",
        f"clientPort={port}",
        f"clientPortAddress={HOST}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=ruok,srvr,mntr,envi",
        "maxClientCnxns=0",
        "autopurge.purgeInterval=1",
    ]
    (folder / "zoo.cfg").write_text("\n".join([*settings, ""]))
    (folder / "logback.xml").write_text(LOGBACK)
    return Command(
        name="zookeeper",
        argv=(
            program.program,
            f"-Xmx{heap or heap_mb()}m",
            "-XX:+ExitOnOutOfMemoryError",  # else the process stays, and serves nobody
            "-XX:+UseSerialGC",
            "-Dzookeeper.nio.numWorkerThreads=0",  # the selector answers, without another thread
            "-Dfile.encoding=UTF-8",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            f"-Dlogback.configurationFile={folder / 'logback.xml'}",
            "-cp",
            program.classpath,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(folder / "zoo.cfg"),
        ),
        log=(log_folder or folder).absolute() / "zookeeper.log",
        clean=frozenset({0, TERMINATED}),
        lock=folder / "lock",
    )


def serves(port: int) -> bool:
    """Whether the server answers requests; `ruok` answers even before an ensemble has a leader."""
    return ask(port, b"srvr", b"Mode:")
