"""The whole of arkline on one machine: ZooKeeper, Redis, workers, two elected beats and Flower."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from entrypoints.stack import redis, zookeeper
from entrypoints.stack.child import Command
from entrypoints.stack.home import StackNote, occupied, write_note
from entrypoints.stack.java import PROJECT
from entrypoints.stack.ports import HOST, ask, free_ports
from entrypoints.stack.signals import StopSignals
from entrypoints.stack.supervisor import Service, Supervisor
from pipeline.settings import Settings

FLOWER_USER = "arkline"
WORKER_STOP_SECONDS = 75
"""SIGTERM lets a worker finish its steps; after ARKLINE_STOP_GRACE (30 s) they hand their jobs back, and
Celery's pool may take another half minute to notice that they ended. Celery's own soft shutdown
(REMAP_SIGTERM=SIGQUIT) would sleep its whole time-out even if the steps end at once."""

TERMINATED_BY_US = frozenset({0, -15, 143})
"""Return codes of an orderly end for programs that do not handle SIGTERM themselves."""


@dataclass(frozen=True)
class Choice:
    """What to run, and where. `environment` is passed on to every process, over what is set already."""

    home: Path
    workers: int = 2
    concurrency: int = 2
    beats: int = 2
    flower: bool = True
    patient: bool = True
    """Whether to be ready means that beats and Flower are, too; work can begin as soon as the workers are."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Servers:
    """Where the two servers are, and what has to be started for that."""

    zk_hosts: str
    broker_url: str
    tier: tuple[Service, ...]


class Stack:
    """A running stack. Call `tend` or `tend_for` a few times a second."""

    def __init__(self, note: StackNote, supervisor: Supervisor, settings: Settings) -> None:
        self.note = note
        self.supervisor = supervisor
        self.settings = settings

    def tend(self) -> None:
        self.supervisor.tend()

    def tend_for(self, seconds: float) -> None:
        self.supervisor.tend_for(seconds)


def servers(home: Path, environment: Mapping[str, str]) -> Servers:
    """The servers to use: those that the environment names, and children of ours for the others."""
    tier: list[Service] = []
    zk_hosts = environment.get("ARKLINE_ZK_HOSTS", "")
    if not zk_hosts:
        chosen = zookeeper.plan(home / "zookeeper", log_folder=home / "log")
        (command,) = zookeeper.prepare(chosen)
        zk_hosts = chosen.hosts
        tier.append(Service(command, ready=lambda: zookeeper.serves(chosen.ports[0])))
    broker_url = environment.get("ARKLINE_BROKER_URL", "")
    if not broker_url:
        (port,) = free_ports(1)
        command = redis.prepare(home / "redis", port, log_folder=home / "log")
        broker_url = redis.url(port)
        tier.append(Service(command, ready=lambda: redis.serves(port)))
    return Servers(zk_hosts, broker_url, tuple(tier))


def child_environment(choice: Choice, zk_hosts: str, broker_url: str) -> dict[str, str]:
    """This stack's ARKLINE_* variables: defaults for one machine, then the caller's, then the servers."""
    given = {name: value for name, value in os.environ.items() if name.startswith("ARKLINE_")}
    return {
        "ARKLINE_PROFILES": str(PROJECT / "examples" / "profiles"),
        "ARKLINE_ZK_SESSION_TIMEOUT": "10",
        **given,
        **choice.environment,
        "ARKLINE_HOME": str(choice.home),
        "ARKLINE_ZK_HOSTS": zk_hosts,
        "ARKLINE_BROKER_URL": broker_url,
    }


def worker(choice: Choice, number: int, environment: Mapping[str, str]) -> Service:
    name = f"worker{number}"
    arguments = (
        *("-m", "celery", "-A", "tasks.app", "worker", "-c", str(choice.concurrency), "-n", f"{name}@%h"),
        *("--without-mingle", "--without-gossip"),
    )
    return _python(choice, name, arguments, environment, WORKER_STOP_SECONDS)


def beat(choice: Choice, number: int, environment: Mapping[str, str]) -> Service:
    name = f"beat{number}"
    service = _python(choice, name, ("-m", "tasks.beat_leader"), environment, 10)
    return replace(service, gates=choice.patient)


def flower(choice: Choice, port: int, password: str, environment: Mapping[str, str]) -> Service:
    """Flower, to look only: ZooKeeper decides, and what tasks are about is shown to those who log in."""
    command = Command(
        name="flower",
        argv=(
            *(sys.executable, "-m", "celery", "-A", "tasks.app", "flower"),
            *(f"--address={HOST}", f"--port={port}", "--read-only", "--max-tasks=5000"),
        ),
        log=choice.home / "log" / "flower.log",
        # by the environment, because every user of the machine can read a process's arguments
        environment={**environment, "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"},
        folder=PROJECT,
        clean=TERMINATED_BY_US,
    )
    question = b"GET /healthcheck HTTP/1.0\r\n\r\n"
    ready = partial(ask, port, question, b" 200 OK", seconds=1)
    return Service(command, ready=ready, gates=choice.patient)


def _python(
    choice: Choice, name: str, arguments: tuple[str, ...], environment: Mapping[str, str], stop: float
) -> Service:
    ready_file = choice.home / "run" / f"{name}.ready"
    command = Command(
        name=name,
        argv=(sys.executable, *arguments),
        log=choice.home / "log" / f"{name}.log",
        environment={**environment, "ARKLINE_READY_FILE": str(ready_file)},
        folder=PROJECT,
        clean=TERMINATED_BY_US,
        stop_seconds=stop,
    )
    return Service(command, ready_file=ready_file)


@contextmanager
def running(
    choice: Choice, signals: StopSignals, say: Callable[[str], None] = lambda _: None
) -> Iterator[Stack]:
    """The stack, from ready to stopped. StopWished or ProcessDied may come out of starting and of `tend`."""
    home = choice.home.absolute()
    choice = replace(choice, home=home)
    with occupied(home):
        found = servers(home, {**os.environ, **choice.environment})
        environment = child_environment(choice, found.zk_hosts, found.broker_url)
        settings = _settings(environment)
        workers = [worker(choice, number, environment) for number in range(1, choice.workers + 1)]
        others = [beat(choice, number, environment) for number in range(1, choice.beats + 1)]
        flower_url = password = ""
        if choice.flower:
            (port,) = free_ports(1)
            password = secrets.token_urlsafe(12)
            flower_url = f"http://{HOST}:{port}/"
            others.append(flower(choice, port, password, environment))

        def note() -> StackNote:
            return StackNote(
                pid=os.getpid(),
                zk_hosts=found.zk_hosts,
                broker_url=found.broker_url,
                flower_url=flower_url,
                flower_user=FLOWER_USER if choice.flower else "",
                flower_password=password,
                environment=environment,
                services={
                    process.name: {"pid": process.pid, "log": str(process.command.log)}
                    for process in supervisor.processes
                },
            )

        tiers = (found.tier, workers, others) if not choice.patient else (found.tier, [*workers, *others])
        _keep_logs_of_last_run(service for tier in tiers for service in tier)
        supervisor = Supervisor(tiers, signals, say, lambda: write_note(home, note()))
        try:
            supervisor.start()
            yield Stack(note(), supervisor, settings)
        finally:
            say("stopping")
            began = time.monotonic()
            supervisor.stop()
            say(f"stopped after {time.monotonic() - began:.1f} s")


def _keep_logs_of_last_run(services: Iterable[Service]) -> None:
    """NAME.log becomes NAME.log.1: what a log shows belongs to this run."""
    for service in services:
        log = service.command.log
        if log.exists():
            log.replace(log.with_suffix(".log.1"))


def _settings(environment: Mapping[str, str]) -> Settings:
    """The settings that the processes of the stack will read from this environment."""
    prefix = "ARKLINE_"
    values = {
        name.removeprefix(prefix).lower(): value
        for name, value in environment.items()
        if name.startswith(prefix)
    }
    return Settings.model_validate(values)
