"""A locked file beside the data that one process at a time may work on, with the number of that process.

The kernel ends the lock with the last process that has the file open: a child that inherits it keeps it.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import IO

from pipeline.errors import UsageRefused

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
