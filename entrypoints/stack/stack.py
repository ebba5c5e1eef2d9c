"""The whole of arkline on one machine: ZooKeeper, Redis, workers, two elected beats, pages and Flower."""

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

from entrypoints.stack.child import HOST, free_ports
from entrypoints.stack.home import StackInfo, kept_token, lock_home, write_info
from entrypoints.stack.services import (
    FLOWER_USER,
    StackConfig,
    beat,
    child_environment,
    flower,
    reserved_workers,
    servers,
    web,
    worker,
)
from entrypoints.stack.supervisor import Service, StopSignals, Supervisor
from pipeline.settings import Settings


@dataclass(frozen=True)
class Stack:
    """A running stack; its owner polls the supervisor a few times a second."""

    info: StackInfo
    supervisor: Supervisor
    settings: Settings


@contextmanager
def running(
    config: StackConfig, signals: StopSignals, say: Callable[[str], None] = lambda _: None
) -> Iterator[Stack]:
    """A stack from ready to stopped. Starting and polling may raise StopRequested or ProcessDied."""
    home = config.home.absolute()
    config = replace(config, home=home)
    with lock_home(home, config.stop_command):
        started = servers(config)
        environment = child_environment(config, started)
        settings = _settings(environment)
        workers = [
            *reserved_workers(config, environment),
            *(worker(config, number, environment) for number in range(1, config.workers + 1)),
        ]
        beats = [beat(config, number, environment) for number in (1, 2)]
        (port, web_port), password = free_ports(2), secrets.token_urlsafe(12)
        web_port = int(environment.get("ARKLINE_WEB_PORT") or web_port)
        others = [
            *beats,
            web(config, web_port, {**environment, "ARKLINE_FLOWER_URL": f"http://{HOST}:{port}/"}),
            flower(config, port, password, environment),
        ]

        @cache
        def token() -> str:
            """Read when the workers are ready, which have created the inventory."""
            return kept_token(home, settings)

        def info() -> StackInfo:
            return StackInfo(
                pid=os.getpid(),
                zk_hosts=started.zk_hosts,
                broker_url=started.broker_url,
                web_url=f"http://{HOST}:{web_port}/",
                token=token(),
                flower_url=f"http://{HOST}:{port}/",
                flower_user=FLOWER_USER,
                flower_password=password,
                environment=environment,
                services={
                    process.name: {"pid": process.pid, "log": str(process.command.log)}
                    for process in supervisor.processes
                },
            )

        tiers = (started.services, [*workers, *others])
        _keep_previous_logs(service for tier in tiers for service in tier)
        supervisor = Supervisor(tiers, signals, say, lambda: write_info(home, info()))
        try:
            supervisor.start()
            yield Stack(info(), supervisor, settings)
        finally:
            say("stopping")
            began = time.monotonic()
            supervisor.stop()
            say(f"stopped after {time.monotonic() - began:.1f} s")


def _keep_previous_logs(services: Iterable[Service]) -> None:
    """Rename NAME.log to NAME.log.1, so that NAME.log belongs to this run."""
    for service in services:
        log = service.command.log
        if log.exists():
            log.replace(log.with_suffix(".log.1"))


def _settings(environment: dict[str, str]) -> Settings:
    """The settings that the processes of the stack will read from this environment."""
    prefix = "ARKLINE_"
    own = [name for name in environment if name.startswith(prefix)]
    return Settings.model_validate({name.removeprefix(prefix).lower(): environment[name] for name in own})
