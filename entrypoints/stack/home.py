"""The folder a stack runs in: one stack at a time, and a note of where its servers are."""

import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict

from pipeline.errors import UsageRefused


class StackRunning(UsageRefused):
    """A stack runs in this folder already."""


class StackNote(BaseModel):
    """`run/stack.json`: what other commands need to find a running stack. It holds a password: mode 0600."""

    model_config = ConfigDict(frozen=True)
    pid: int
    zk_hosts: str
    broker_url: str
    flower_url: str = ""
    flower_user: str = ""
    flower_password: str = ""
    environment: dict[str, str]
    """What a program needs to work on this stack: ARKLINE_* variables."""
    services: dict[str, dict[str, Any]]
    """Name -> pid and log file."""


def note_path(home: Path) -> Path:
    return home / "run" / "stack.json"


def environment_path(home: Path) -> Path:
    return home / "run" / "environment"


def _lock_path(home: Path) -> Path:
    return home / "run" / "lock"


@contextmanager
def occupied(home: Path) -> Iterator[None]:
    """Hold the folder; the kernel lets go of it when we die, however we die."""
    path = _lock_path(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        if not _take(lock):
            raise StackRunning(
                f"a stack runs in {home} already (process {holder(home)}); stop it with Ctrl-C "
                "where it runs, or with ./dev down"
            )
        _forget_note(home)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        try:
            yield
        finally:
            _forget_note(home)
            lock.truncate(0)


def _take(lock: IO[str]) -> bool:
    """Lock it. Tried for half a second, because `holder` locks it too, for a moment."""
    for _ in range(10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def holder(home: Path) -> int | None:
    """The process that runs a stack in this folder, or None."""
    try:
        with _lock_path(home).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder_pid(home)
    except FileNotFoundError:
        return None
    return None


def _holder_pid(home: Path) -> int:
    """What the holder wrote; it writes right after it has locked."""
    for _ in range(100):
        if text := _lock_path(home).read_text().strip():
            return int(text)
        time.sleep(0.01)
    raise UsageRefused(f"{_lock_path(home)} is locked by a process that did not write its number")


def write_note(home: Path, note: StackNote) -> None:
    """Write the note, and its environment in a form that a shell reads."""
    _write_private(note_path(home), json.dumps(note.model_dump(), indent=1) + "\n")
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(note.environment.items())]
    _write_private(environment_path(home), "".join(lines))


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
        stream.write(text)
    draft.replace(path)


def read_note(home: Path) -> StackNote | None:
    """The note of the stack that runs in this folder, once it is ready; None if there is none."""
    pid = holder(home)
    try:
        note = StackNote.model_validate_json(note_path(home).read_bytes())
    except FileNotFoundError:
        return None
    return note if note.pid == pid else None


def _forget_note(home: Path) -> None:
    for path in (note_path(home), environment_path(home)):
        path.unlink(missing_ok=True)
