"""All of arkline on one machine: ZooKeeper, Redis, workers, two elected beats, pages and Flower.

It runs in the foreground or the background, and can be stopped from any terminal.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from entrypoints.stack.child import HOST, Command, free_ports, usable_port
from entrypoints.stack.home import (
    StackInfo,
    kept_token,
    lock_home,
    open_private,
    read_info,
    running_pid,
    stack_running,
    write_info,
)
from entrypoints.stack.services import (
    FLOWER_USER,
    ZOOKEEPER,
    StackConfig,
    beat,
    child_environment,
    flower,
    reserved_workers,
    servers,
    web,
    worker,
)
from entrypoints.stack.supervisor import StopSignals, Supervisor, stop_signals
from operations.run import Stopped
from pipeline import codes
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.settings import Settings
from pipeline.umask import keep_private


@dataclass(frozen=True)
class Stack:
    """A running stack; its owner polls the supervisor several times a second."""

    info: StackInfo
    supervisor: Supervisor
    settings: Settings


@contextmanager
def running(
    config: StackConfig,
    signals: StopSignals,
    say: Callable[[str], None] = lambda _: None,
    check: Callable[[Settings], None] = lambda _: None,
) -> Iterator[Stack]:
    """A stack, from ready to stopped. Starting and polling may raise Stopped or `process-died`.

    `check` may refuse to start a fleet on the servers of this stack, which are ready.
    """
    home = config.home.absolute()
    config = replace(config, home=home)
    with lock_home(home, config.stop_command):
        started = servers(config)
        environment = child_environment(config, started)
        settings = _settings(environment)
        fleet, pages = _fleet(config, environment) if not config.servers_only else ((), {})

        @cache
        def token() -> str:
            """Read once the workers, which create the inventory, are ready."""
            return kept_token(home, settings) if fleet else ""

        def info() -> StackInfo:
            return StackInfo(
                pid=os.getpid(),
                zk_hosts=started.zk_hosts,
                broker_url=started.broker_url,
                token=token(),
                **pages,
                environment=environment,
                services={
                    process.name: {"pid": process.pid, "log": str(process.command.log)}
                    for process in supervisor.processes
                },
            )

        tiers = (started.services, fleet)
        _keep_previous_logs(command for tier in tiers for command in tier)
        supervisor = Supervisor(tiers, signals, say, lambda: write_info(home, info()))
        try:
            own_record = fleet and any(server.name == ZOOKEEPER for server in started.services)
            supervisor.start(partial(check, settings) if own_record else lambda: None)
            yield Stack(info(), supervisor, settings)
        finally:
            say("stopping")
            began = time.monotonic()
            supervisor.stop()
            say(f"stopped after {time.monotonic() - began:.1f} s")


WEB_PORT = "ARKLINE_WEB_PORT"


def _fleet(config: StackConfig, environment: dict[str, str]) -> tuple[tuple[Command, ...], dict[str, str]]:
    """Workers, beats, pages and Flower, and the fields of the info about the last two."""
    (port, web_port), password = free_ports(2), secrets.token_urlsafe(12)
    if given := environment.get(WEB_PORT):
        web_port = usable_port(given, WEB_PORT)
    web_url, flower_url = f"http://{HOST}:{web_port}/", f"http://{HOST}:{port}/"
    commands = (
        *reserved_workers(config, environment),
        *(worker(config, number, environment) for number in range(1, config.workers + 1)),
        *(beat(config, number, environment) for number in (1, 2)),
        web(config, web_port, {**environment, "ARKLINE_FLOWER_URL": flower_url}),
        flower(config, port, password, web_url, environment),
    )
    login = {"flower_user": FLOWER_USER, "flower_password": password}
    return commands, {"web_url": web_url, "flower_url": flower_url, **login}


def _keep_previous_logs(commands: Iterable[Command]) -> None:
    """Rename NAME.log to NAME.log.1, so that NAME.log is this run's."""
    for command in commands:
        log = command.log
        if log.exists():
            log.replace(log.with_suffix(".log.1"))


def _settings(environment: dict[str, str]) -> Settings:
    """The settings that the stack's processes will read from this environment."""
    prefix = "ARKLINE_"
    own = [name for name in environment if name.startswith(prefix)]
    return Settings.model_validate({name.removeprefix(prefix).lower(): environment[name] for name in own})


START_SECONDS = 180
STOP_SECONDS = 120
"""A worker may need 60 s to finish its step, and Celery's pool another half minute to notice."""

SAMPLE_PROFILES = Path(__file__).with_name("profiles")
"""Profiles of a new stack, unless ARKLINE_PROFILES names another folder."""


def run(
    config: StackConfig,
    say: Callable[[str], None],
    ready: Callable[[StackInfo], None],
    check: Callable[[Settings], None] = lambda _: None,
) -> None:
    """Run a stack until a stop signal; `ready` is called once all services are ready.

    `check`: as for `running`.
    """
    keep_private()
    ensure_profiles(config)
    with (
        stop_signals() as signals,
        suppress(Stopped),
        running(config, signals, say, check) as started,
    ):
        ready(started.info)
        while True:
            started.supervisor.poll_for(0.2)


def start_in_background(config: StackConfig) -> StackInfo:
    """Start a stack in a separate process, and return when every service is ready."""
    home = config.home.absolute()
    if (pid := running_pid(home)) is not None:
        raise stack_running(home, pid, config.stop_command)
    keep_private()
    log = home / "log" / "standalone.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    options = [f"--home={home}", f"--workers={config.workers}", f"--concurrency={config.concurrency}"]
    if config.servers_only:
        options.append("--servers-only")
    if config.zookeeper is not None:
        options.append(f"--zookeeper={config.zookeeper.absolute()}")
    with open_private(log) as stream:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "arkline", "standalone", "start", *options],
            env={**os.environ, **config.environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while (info := read_info(home)) is None:
        if child.poll() is not None:
            if (pid := running_pid(home)) is not None:  # it was started at the same moment
                raise stack_running(home, pid, config.stop_command)
            raise ArklineError(
                f"the stack did not start; the log {log}:\n{log.read_text()}", code=codes.STACK_FAILED
            )
        if time.monotonic() > deadline:
            raise ArklineError(
                f"the stack is not ready after {START_SECONDS} s; see {log}; stop it: {config.stop_command}",
                code=codes.STACK_FAILED,
            )
        time.sleep(0.1)
    return info


def stop(home: Path) -> float | None:
    """Stop the stack running in this folder in order; returns the seconds taken, None if none was running."""
    pid = running_pid(home)
    if pid is None:
        return None
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGCONT)  # a stopped process would not receive it
    while running_pid(home) == pid:
        if time.monotonic() - began > STOP_SECONDS:
            raise ServiceUnreachable(f"process {pid} still runs after {STOP_SECONDS} s; see {home / 'log'}")
        time.sleep(0.1)
    return time.monotonic() - began


def ensure_profiles(config: StackConfig) -> None:
    """Copy the sample profiles to a new home, where people edit them and add their own."""
    folder = config.home / "profiles"
    if not {**os.environ, **config.environment}.get("ARKLINE_PROFILES") and not folder.exists():
        draft = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(draft, ignore_errors=True)  # of a start that ended here
        shutil.copytree(SAMPLE_PROFILES, draft)
        draft.rename(folder)
