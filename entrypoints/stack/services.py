"""The programs of a stack as services: ZooKeeper, Redis, workers, beats, the web process and Flower."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from entrypoints import programs
from entrypoints.stack import java, redis, zookeeper
from entrypoints.stack.child import HOST, Command, ask, free_ports
from entrypoints.stack.supervisor import Service
from pipeline.errors import UsageRefused
from pipeline.machine import Queue

FLOWER_USER = "arkline"
WORKER_STOP_SECONDS = 75
"""After SIGTERM a worker finishes its steps; after ARKLINE_STOP_GRACE (1 s) it hands its jobs back, and
Celery's pool may need another half minute to notice that the steps ended. Celery's own soft shutdown
(REMAP_SIGTERM=SIGQUIT) would sleep for its whole time-out even if the steps end at once."""

RESERVED_PROCESSES = 2
"""Processes for one queue alone: while one waits for a manifest or a mail server, the other works."""

TERMINATED = frozenset({0, -15, 143})
"""Return codes of an orderly end for programs that do not handle SIGTERM themselves."""

PATH_SETTINGS = tuple(
    f"ARKLINE_{name}"
    for name in (
        *("WORKING_STORAGE", "STORAGE_ROOT", "OUTBOX", "PROFILES", "UPLOADS"),
        *("ZK_TLS_CA", "ZK_TLS_CERTIFICATE", "ZK_TLS_KEY"),
    )
)
"""Settings that name a folder or a file. The services have another current directory than the caller, so
that the paths are made absolute."""

STACK_VARIABLE = "ARKLINE_STACK"
"""Set in the environment of a stack: its folder. A shell that has read `run/environment` still names the
servers of the previous run when it starts the stack again; they are not used."""

CLIENT_VARIABLES = ("ARKLINE_URL", "ARKLINE_TOKEN", "ARKLINE_STACK_URL")
"""Set by `run/environment` for a person's commands; a token is no business of the stack's processes."""


@dataclass(frozen=True)
class StackConfig:
    """The services to run."""

    home: Path
    workers: int = 2
    concurrency: int = 2
    zookeeper: Path | None = None
    """The folder of an unpacked ZooKeeper distribution; None: the system's packages, or ZOOKEEPER_HOME."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Passed to every process, over the variables set already."""
    stop_command: str = "arkline standalone stop"
    """The command that stops this stack, for messages."""


@dataclass(frozen=True)
class Servers:
    """The servers' addresses, and the services that have to be started for them."""

    zk_hosts: str
    broker_url: str
    services: tuple[Service, ...]


def servers(config: StackConfig) -> Servers:
    """The servers that the environment names, and child processes for the others."""
    environment = {**os.environ, **config.environment}
    if environment.get(STACK_VARIABLE) == str(config.home):
        environment = {**environment, "ARKLINE_ZK_HOSTS": "", "ARKLINE_BROKER_URL": ""}
    services: list[Service] = []
    zk_hosts = environment.get("ARKLINE_ZK_HOSTS", "")
    if not zk_hosts:
        (zk_port,) = free_ports(1)
        with_java = _java_environment(config, environment)
        command = zookeeper.prepare(
            config.home / "zookeeper", zk_port, log_folder=config.home / "log", environment=with_java
        )
        zk_hosts = f"{HOST}:{zk_port}"
        serves = partial(zookeeper.serves, zk_port)
        services.append(Service(command, ready=serves, answers=serves))
    broker_url = environment.get("ARKLINE_BROKER_URL", "")
    if not broker_url:
        (port,) = free_ports(1)
        command = redis.prepare(config.home / "redis", port, log_folder=config.home / "log")
        broker_url = redis.url(port)
        services.append(Service(command, ready=lambda: redis.serves(port)))
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
    """This stack's ARKLINE_* variables: defaults for one machine, the caller's variables, the servers."""
    given = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("ARKLINE_") and name not in CLIENT_VARIABLES
    }
    defaults = {"ARKLINE_ZK_SESSION_TIMEOUT": "10", "ARKLINE_PROFILES": str(config.home / "profiles")}
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


def worker(config: StackConfig, number: int, environment: Mapping[str, str]) -> Service:
    name = f"worker{number}"
    argv = programs.worker(config.concurrency, f"{name}@%h")
    return _service(config, name, argv, environment, WORKER_STOP_SECONDS)


def reserved_workers(config: StackConfig, environment: Mapping[str, str]) -> list[Service]:
    """Workers that no download can occupy: one reports, feeds and sweeps, one splits."""
    return [_reserved_worker(config, queue, environment) for queue in (Queue.CONTROL, Queue.SPLIT)]


def _reserved_worker(config: StackConfig, queue: Queue, environment: Mapping[str, str]) -> Service:
    argv = programs.worker(RESERVED_PROCESSES, f"{queue}@%h", (queue,))
    return _service(config, queue.value, argv, environment, WORKER_STOP_SECONDS)


def beat(config: StackConfig, number: int, environment: Mapping[str, str]) -> Service:
    return _service(config, f"beat{number}", programs.beat(), environment, 10)


def web(config: StackConfig, port: int, environment: Mapping[str, str]) -> Service:
    """The pages and the REST API; restarted once it says that only this helps."""
    command = Command(
        name="web",
        argv=programs.web(HOST, port),
        log=config.home / "log" / "web.log",
        environment=environment,
        folder=config.home,
        clean=TERMINATED,
        stop_seconds=10,
    )

    def says(path: str) -> bool:
        question = f"GET /health/{path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
        return ask(port, question.encode(), b" 200 OK", seconds=1)

    return Service(command, ready=partial(says, "ready"), answers=partial(says, "live"))


def flower(config: StackConfig, port: int, password: str, environment: Mapping[str, str]) -> Service:
    """Flower, read-only behind a password: operators act through arkline, and tasks name deposits."""
    command = Command(
        name="flower",
        argv=programs.flower(HOST, port),
        log=config.home / "log" / "flower.log",
        # in the environment, because every user of the machine can read a process's arguments
        environment={**environment, "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"},
        folder=config.home,
        clean=TERMINATED,
    )
    question = b"GET /healthcheck HTTP/1.0\r\n\r\n"
    ready = partial(ask, port, question, b" 200 OK", seconds=1)
    return Service(command, ready=ready)


def _service(
    config: StackConfig, name: str, argv: tuple[str, ...], environment: Mapping[str, str], stop: float
) -> Service:
    ready_file = config.home / "run" / f"{name}.ready"
    command = Command(
        name=name,
        argv=argv,
        log=config.home / "log" / f"{name}.log",
        environment={**environment, "ARKLINE_READY_FILE": str(ready_file)},
        folder=config.home,
        clean=TERMINATED,
        stop_seconds=stop,
    )
    return Service(command, ready_file=ready_file)
