"""The folder of a stack: a lock that admits one stack at a time, and a file with the servers' addresses."""

import fcntl
import json
import os
import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from pipeline.errors import UsageRefused


class StackRunning(UsageRefused):
    """A stack already runs in this folder."""

    def __init__(self, home: Path, pid: int | None, stop_command: str) -> None:
        super().__init__(
            f"a stack already runs in {home} (process {pid}); stop it with Ctrl-C in its terminal, "
            f"or with: {stop_command}"
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


NUMBER_WAIT = 10.0
"""Seconds to wait for the number, or the end, of the process that has locked the folder."""


def _lock_path(home: Path) -> Path:
    return home / "run" / "lock"


@contextmanager
def lock_home(home: Path, stop_command: str) -> Iterator[None]:
    """Lock the folder for this process; the kernel releases the lock when the process ends in any way."""
    path = _lock_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        if not _try_lock(lock):
            raise StackRunning(home, running_pid(home), stop_command)
        _remove_info(home)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        try:
            yield
        finally:
            _remove_info(home)
            lock.truncate(0)


def _try_lock(lock: IO[str]) -> bool:
    """Lock the file. Tried for half a second, because `running_pid` also locks it for a moment."""
    for _ in range(10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def running_pid(home: Path) -> int | None:
    """The process that runs a stack in this folder, or None.

    Its number is in the file from shortly after locking to shortly before the lock ends.
    """
    deadline = time.monotonic() + NUMBER_WAIT
    while time.monotonic() < deadline:
        try:
            with _lock_path(home).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if text := _lock_path(home).read_text().strip():
                return int(text)
        except FileNotFoundError:
            return None
        else:
            return None
        time.sleep(0.01)
    raise UsageRefused(f"{_lock_path(home)} is locked by a process that did not write its number")


def write_info(home: Path, info: StackInfo) -> None:
    """Write the file, and its environment in a form that a shell reads."""
    write_private(info_path(home), json.dumps(info.model_dump(), indent=1) + "\n")
    client = {"ARKLINE_URL": info.web_url.rstrip("/"), "ARKLINE_TOKEN": info.token}
    variables = info.environment | {name: value for name, value in client.items() if value}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items())]
    write_private(environment_path(home), "".join(lines))


def write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
        stream.write(text)
    draft.replace(path)


def kept_secret(path: Path) -> str:
    """The secret in this file, made at the first start: messages of the previous run must stay valid."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()


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
