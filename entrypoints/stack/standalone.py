"""Run a stack in the foreground, start one in the background, and stop it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from entrypoints.stack import stack
from entrypoints.stack.home import StackInfo, StackRunning, open_private, read_info, running_pid
from entrypoints.stack.services import StackConfig
from entrypoints.stack.supervisor import StopRequested, stop_signals
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.fixity import keep_private

START_SECONDS = 180
STOP_SECONDS = 120
"""A worker may need 60 s to finish its step, and Celery's pool half a minute to notice."""

SAMPLE_PROFILES = Path(__file__).with_name("profiles")
"""Profiles that a new stack starts with, if ARKLINE_PROFILES names no other folder."""


class StackFailed(ArklineError):
    """The stack in the background did not become ready; the message names its log."""


def default_home() -> Path:
    """The user's data folder for arkline, after the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "arkline"


def run(config: StackConfig, say: Callable[[str], None], ready: Callable[[StackInfo], None]) -> None:
    """Run a stack until a stop signal; calls `ready` once every service is ready."""
    keep_private()
    ensure_profiles(config)
    with (
        stop_signals() as signals,
        suppress(StopRequested),
        stack.running(config, signals, say) as running,
    ):
        ready(running.info)
        while True:
            running.supervisor.poll_for(0.2)


def start_in_background(config: StackConfig) -> StackInfo:
    """Start a stack in a separate process, and return when every service is ready."""
    home = config.home.absolute()
    if (pid := running_pid(home)) is not None:
        raise StackRunning(home, pid, config.stop_command)
    keep_private()
    log = home / "log" / "standalone.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    options = [f"--home={home}", f"--workers={config.workers}", f"--concurrency={config.concurrency}"]
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
            raise StackFailed(f"the stack did not start; the log {log}:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise StackFailed(
                f"the stack is not ready after {START_SECONDS} s; see {log}; stop it: {config.stop_command}"
            )
        time.sleep(0.1)
    return info


def stop(home: Path) -> float | None:
    """Stop the stack that runs in this folder in order; seconds that it took, None if none runs."""
    pid = running_pid(home)
    if pid is None:
        return None
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    while running_pid(home) == pid:
        if time.monotonic() - began > STOP_SECONDS:
            raise ServiceUnreachable(f"process {pid} still runs after {STOP_SECONDS} s; see {home / 'log'}")
        time.sleep(0.1)
    return time.monotonic() - began


def ensure_profiles(config: StackConfig) -> None:
    """Copy the sample profiles into a new home, where people edit them and add their own."""
    folder = config.home / "profiles"
    if not {**os.environ, **config.environment}.get("ARKLINE_PROFILES") and not folder.exists():
        shutil.copytree(SAMPLE_PROFILES, folder)
