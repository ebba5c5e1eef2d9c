"""The folder of a stack: its lock, a file with the servers' addresses, and the operator's token.

The lock admits one stack at a time and names its process. The kernel ends the lock with the last process
that has the file open: a child that inherits it keeps it.
"""

import fcntl
import getpass
import json
import os
import secrets
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from operations.tokens import Authenticator, InvalidToken, create_token
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings

NUMBER_WAIT = 10.0
"""Seconds to wait for the number, or the end, of the process that has locked a file."""


def take(path: Path, wait: float = 0.5) -> IO[str] | None:
    """The file, locked until it is closed everywhere; None if another process has it after `wait` seconds.

    The number in it is this process's. Half a second outlasts `holder`, which locks the file for a moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("a+")
    deadline = time.monotonic() + wait
    while not _locks(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            lock.close()
            return None
        time.sleep(0.05)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def holder(path: Path) -> int | None:
    """The process that locked the file, or None; the number is there from shortly after the lock on."""
    deadline = time.monotonic() + NUMBER_WAIT
    while time.monotonic() < deadline:
        try:
            with path.open("r+") as lock:
                if _locks(lock, fcntl.LOCK_SH):
                    return None
                if text := lock.read().strip():
                    return int(text)
        except FileNotFoundError:
            return None
        time.sleep(0.01)
    raise UsageRefused(f"{path} is locked by a process that did not write its number")


def _locks(lock: IO[str], how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def stack_running(home: Path, pid: int | None, stop_command: str) -> UsageRefused:
    return UsageRefused(
        f"a stack already runs in {home} (process {pid}); stop it with Ctrl-C in its terminal, "
        f"or with: {stop_command}",
        code=codes.STACK_RUNNING,
    )


class StackInfo(BaseModel):
    """`run/stack.json`: how other commands reach a running stack. It holds secrets: mode 0600."""

    model_config = ConfigDict(frozen=True)
    pid: int
    zk_hosts: str
    broker_url: str
    web_url: str = ""
    token: str = ""
    """An operator's token for the pages and the REST API."""
    flower_url: str = ""
    flower_user: str = ""
    flower_password: str = ""
    environment: dict[str, str]
    """The ARKLINE_* variables with which a program works on this stack."""
    services: dict[str, dict[str, Any]]
    """Name -> pid and log file."""


def info_path(home: Path) -> Path:
    return home / "run" / "stack.json"


def environment_path(home: Path) -> Path:
    return home / "run" / "environment"


LOCK = "lock"
"""In the folder itself: `run` holds only what may be deleted at any time."""

SERVERS_LOCKS = ("zookeeper/lock", "redis/lock")
"""Beside the data of a server, which keeps the lock for as long as it lives. The number is the stack's."""

LOCK_OF_0_2_0 = "run/lock"


@contextmanager
def lock_home(home: Path, stop_command: str) -> Iterator[None]:
    """Lock the folder for this process; the kernel releases the lock when the process ends in any way."""
    if (pid := running_pid(home)) is not None:
        raise stack_running(home, pid, stop_command)
    lock = take(home / LOCK)
    if lock is None:
        raise stack_running(home, running_pid(home), stop_command)
    with lock:
        _remove_info(home)
        try:
            yield
        finally:
            _remove_info(home)
            lock.truncate(0)


def running_pid(home: Path) -> int | None:
    """The process that runs a stack in this folder, or None; also if files of it were deleted meanwhile."""
    for name in (LOCK, LOCK_OF_0_2_0):
        if pid := holder(home / name):
            return pid
    stacks = (holder(home / name) for name in SERVERS_LOCKS)
    return next((pid for pid in stacks if pid and _is_alive(pid)), None)


def _is_alive(pid: int) -> bool:
    """False for a stack that was killed, whose servers end after it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def write_info(home: Path, info: StackInfo) -> None:
    """Write the file, and its environment in a form that a shell reads."""
    write_private(info_path(home), json.dumps(info.model_dump(), indent=1) + "\n")
    url = info.web_url.rstrip("/")
    client = {"ARKLINE_URL": url, "ARKLINE_TOKEN": info.token, "ARKLINE_STACK_URL": url}
    variables = info.environment | {name: value for name, value in client.items() if value}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    write_private(environment_path(home), "".join(lines))


def write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    with open_private(draft) as stream:
        stream.write(text.encode())
    draft.replace(path)


def open_private(path: Path) -> IO[bytes]:
    """A new file that only its owner may read; one that is there, with whatever mode, goes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def read_info(home: Path) -> StackInfo | None:
    """The file of the stack that runs in this folder; None if no stack runs or it is not ready yet."""
    pid = running_pid(home)
    try:
        info = StackInfo.model_validate_json(info_path(home).read_bytes())
    except FileNotFoundError:
        return None
    return info if info.pid == pid else None


def _remove_info(home: Path) -> None:
    for path in (info_path(home), environment_path(home)):
        path.unlink(missing_ok=True)


def kept_token(home: Path, settings: Settings) -> str:
    """The token in this folder if the inventory knows it; else a new one."""
    path, inventory = home / "token", open_inventory(settings.inventory)
    if path.exists() and _is_valid(token := path.read_text().strip(), inventory):
        return token
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    creator = Principal(name=person, role=Role.ADMIN, interface=Interface.CLI)
    # a name is never used twice
    created = create_token(inventory, creator, f"stack-{secrets.token_hex(4)}", Role.OPERATOR)
    write_private(path, created.token + "\n")
    return created.token


def _is_valid(token: str, inventory: SqlInventory) -> bool:
    try:
        Authenticator(lambda: inventory).authenticate(token, Interface.CLI)
    except InvalidToken:
        return False
    return True
