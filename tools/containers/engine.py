"""podman with a configuration, a store and networks of its own: nothing in /etc, no other container is seen.

The store stays between runs, so that images are made once; one run at a time has it.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import ArklineError
from tools import for_tests
from tools.command_line import say
from tools.servers import this_machine

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arkline" / "containers"

COMMAND_TIMEOUT = 900
"""Seconds for one command of the engine; the longest installs packages into an image."""

IMAGES_STAY = "168h"
"""A change of the code leaves some 400 MB: an image that has lost its name, and layers that builds reuse."""

SHARES = {"cpu/libpod_parent/cpu.shares": "8192", "libpod_parent/cpu.weight": "800"}
"""File of podman's group of processes, in cgroups 1 and 2 -> eight times the default.

All containers are in the group, which otherwise gets as much of a busy machine as one process.
"""

CONFIGURATION = """\
[containers]
default_ulimits = []
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""

STORE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/store"
runroot = "{folder}/run"
"""


class CannotRun(ArklineError):
    """This machine runs no containers; the message has the reason."""


class EngineFailed(ArklineError):
    """A command of the engine failed; the message has its last lines."""


@dataclass(frozen=True)
class Engine:
    """`run` runs a command with the private configuration."""

    environment: Mapping[str, str] = field(repr=False)

    def run(self, *command: str, check: bool = True, more: Mapping[str, str] | None = None) -> str:
        """The command's standard output; EngineFailed if it ends with another code than 0 and `check`."""
        done = subprocess.run(
            command,
            env={**self.environment, **(more or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        if check and done.returncode:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise EngineFailed(f"{' '.join(command[:6])} ended with code {done.returncode}:\n{tail}")
        return done.stdout

    def succeeds(self, *command: str) -> bool:
        return (
            subprocess.run(command, env=dict(self.environment), capture_output=True, check=False).returncode
            == 0
        )

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        """The facts about a `container`, `image`, `network` or `volume`."""
        facts: list[dict[str, Any]] = json.loads(self.run("podman", kind, "inspect", name))
        return facts[0]

    def names(self, kind: str, project: str) -> list[str]:
        """The containers, networks or volumes that a project has made."""
        command = ("podman", "ps", "--all") if kind == "container" else ("podman", kind, "ls")
        label = f"label=io.podman.compose.project={project}"
        shape = "{{.Names}}" if kind == "container" else "{{.Name}}"
        return self.run(*command, "--filter", label, "--format", shape).split()


@contextmanager
def engine() -> Iterator[Engine]:
    """The engine, without containers before and after the block; CannotRun if this machine has none.

    A container that stayed would be started again and again, with its part of the machine.
    """
    install()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in (("containers.conf", CONFIGURATION), ("storage.conf", STORE)):
        (FOLDER / name).write_text(text.format(folder=FOLDER))
    own = {
        "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
        # podman-compose is in this Python's environment
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    private = Engine({**os.environ, **own})
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if problem := _problem(private):
            raise CannotRun(f"podman runs no container on this machine: {problem}")
        clear(private)
        try:
            yield private
        finally:
            clear(private)


def take_shares() -> None:
    """Give the containers their part of a busy machine, once podman has made its group of processes."""
    for name, share in SHARES.items():
        file = Path("/sys/fs/cgroup") / name
        if file.exists():
            file.write_text(share)


def install() -> None:
    """Install podman and what it needs from Debian's packages; CannotRun if that is impossible."""
    if os.geteuid() != 0:
        raise CannotRun("podman keeps users and networks of its own only for root")
    for_tests.ensure(this_machine(), say, for_tests.PODMAN)
    if absent := for_tests.missing(for_tests.PODMAN):
        raise CannotRun(f"Debian's packages {', '.join(one.package for one in absent)} are not installed")


def clear(engine: Engine) -> None:
    """Remove every pod, container, network, volume and secret of the private store, and old images."""
    engine.run("podman", "pod", "rm", "--all", "--force", "--time", "0")
    engine.run("podman", "rm", "--all", "--force", "--time", "0")
    engine.run("podman", "network", "prune", "--force")
    engine.run("podman", "volume", "prune", "--force")
    engine.run("podman", "secret", "rm", "--all")
    engine.run("podman", "image", "prune", "--force", "--filter", f"until={IMAGES_STAY}")


def _problem(engine: Engine) -> str:
    """Why the engine runs nothing, or an empty text."""
    try:
        engine.run("podman", "info")
    except EngineFailed as error:
        return str(error)
    return ""


def until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether `holds` becomes true in time; the engine offers no event to wait for.

    A question of each container costs a quarter of a second of CPU, so it is asked once a second.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True
