"""The folder of a stack: its lock, a file with the servers' addresses, and the operator's token.

The lock admits one stack at a time and holds its process id. The kernel releases it when the last process
with the file open ends: a child that inherits the file keeps the lock.
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
from pipeline.file_system import replace_file
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings


def default_home() -> Path:
    """The user's data folder for arkline, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "arkline"


NUMBER_WAIT = 10.0
"""Seconds to wait until the locking process has written its id, or has ended."""


def take(path: Path, wait: float = 0.5) -> IO[str] | None:
    """The file, locked until closed everywhere; None if another process holds it after `wait` seconds.

    This process's id is written to it. Half a second outlasts `holder`, which locks the file briefly.
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
    """The id of the process that locked the file, or None; the id appears shortly after the lock is taken."""
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


def unread_environment() -> Path | None:
    """The environment file of this user's stack that runs in the default folder, or in that of `./dev up`."""
    for home in (default_home(), Path("var").absolute()):
        file = environment_path(home)
        # what another user wrote is not to be executed
        is_own = os.access(file, os.R_OK) and file.stat().st_uid == os.getuid()
        if is_own and running_pid(home) is not None:
            return file
    return None


LOCK = "lock"
"""In the folder itself, because `run` holds only what may be deleted at any time."""

SERVERS_LOCKS = ("zookeeper/lock", "redis/lock")
"""Beside the data of a server, which holds the lock while it lives. The process id in it is the stack's."""

LOCK_OF_0_2_0 = "run/lock"


@contextmanager
def lock_home(home: Path, stop_command: str) -> Iterator[None]:
    """Lock the folder for this process; the kernel releases the lock however the process ends."""
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
    """The id of the process that runs a stack in this folder, or None; found even if files were deleted."""
    for name in (LOCK, LOCK_OF_0_2_0):
        if pid := holder(home / name):
            return pid
    stacks = (holder(home / name) for name in SERVERS_LOCKS)
    return next((pid for pid in stacks if pid and _is_alive(pid)), None)


def _is_alive(pid: int) -> bool:
    """False for a killed stack, whose servers end after it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        return True
    return True


def write_info(home: Path, info: StackInfo) -> None:
    """Write the info file, and its environment as a shell script."""
    replace_file(info_path(home), json.dumps(info.model_dump(), indent=1) + "\n")
    url = info.web_url.rstrip("/")
    client = {"ARKLINE_URL": url, "ARKLINE_TOKEN": info.token, "ARKLINE_STACK_URL": url}
    variables = info.environment | {name: value for name, value in client.items() if value}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    replace_file(environment_path(home), "".join(lines))


def open_private(path: Path) -> IO[bytes]:
    """Create a file that only its owner may read; an existing one is removed first, whatever its mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def read_info(home: Path) -> StackInfo | None:
    """The info of the stack running in this folder; None if none runs or it is not ready yet."""
    pid = running_pid(home)
    try:
        info = StackInfo.model_validate_json(info_path(home).read_bytes())
    except FileNotFoundError:
        return None
    return info if info.pid == pid else None


def _remove_info(home: Path) -> None:
    for path in (info_path(home), environment_path(home)):
        path.unlink(missing_ok=True)


def kept_callback_secret(home: Path) -> str:
    """This folder's key of notifications and callbacks, made at the first start."""
    path = home / "callback_secret"
    if not path.exists():
        replace_file(path, secrets.token_hex(24))
    return path.read_text()


def kept_token(home: Path, settings: Settings) -> str:
    """This folder's token if the inventory knows it, otherwise a new one."""
    path, inventory = home / "token", open_inventory(settings.inventory)
    if path.exists() and _is_valid(token := path.read_text().strip(), inventory):
        return token
    person = f"{getpass.getuser()}@{socket.gethostname()}"
    creator = Principal(name=person, role=Role.ADMIN, interface=Interface.CLI)
    # a name must never be reused
    created = create_token(inventory, creator, f"stack-{secrets.token_hex(4)}", Role.OPERATOR)
    replace_file(path, created.token + "\n")
    return created.token


def _is_valid(token: str, inventory: SqlInventory) -> bool:
    try:
        Authenticator(lambda: inventory).authenticate(token, Interface.CLI)
    except InvalidToken:
        return False
    return True
