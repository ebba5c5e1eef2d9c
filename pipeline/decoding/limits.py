"""The limits of a decoding process, which the process sets for itself before it reads a foreign byte.

A limit that the system does not have, or does not let this process set, is left out.
"""

import ctypes
import os
import resource
import signal
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.attempt import Progress
from pipeline.decoding import call_filter, write_filter

BYTES_PER_SECOND = 1_000_000
"""A decoder may use a second more of processor time for each so many bytes that it has read or written.
bzip2, the slowest format, is some ten times as fast."""

FILES_PER_SECOND = 1000
"""... and for so many files; the disks of this project's tests create some 5,000 in a second."""

OPEN_FILES = 32
"""A container, one file that is written, and the interpreter's own."""

_LIBRARY = (
    *{sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")},
    str(Path(__file__).resolve().parents[1]),
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
)
"""Python's own modules, ours, and shared libraries: a module may be loaded when it is first needed."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Limits:
    memory: int
    """Bytes of address space."""
    seconds: int
    """Processor time before the first byte, and without progress."""
    file_bytes: int = 0
    """Bytes of one file that is written."""
    asks: bool = False
    """Whether the worker is asked before bytes are written."""
    writes: str = ""
    """The folder below which files may be written; empty: nowhere."""
    reads: tuple[str, ...] = ()
    """The files and folders of the deposit that may be read."""


def apply(limits: Limits) -> None:
    if sys.platform == "linux":
        _die_with_server()
        _leave_network()
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_AS, limits.memory)
    _set(resource.RLIMIT_NOFILE, OPEN_FILES)
    _set(resource.RLIMIT_FSIZE, limits.file_bytes)
    _set(resource.RLIMIT_NPROC, 0)
    write_filter.restrict_files(limits.writes, (*limits.reads, *_LIBRARY, *_installed()))
    call_filter.restrict_calls()
    allow(limits, Progress())


def _installed() -> list[str]:
    """The folders of installed packages, and no other place of modules: secrets may be beside those."""
    return [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def allow(limits: Limits, done: Progress) -> None:
    """Processor time for the work that is done; the kernel ends the process after it."""
    seconds = limits.seconds + done.bytes // BYTES_PER_SECOND + done.files // FILES_PER_SECOND
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


def _set(limit: int, value: int) -> None:
    with suppress(OSError, ValueError):
        resource.setrlimit(limit, (value, value))


def _leave_network() -> None:
    """Into a network of its own, without any interface; where that is not permitted, nothing changes."""
    # root needs no user namespace, and would lose the right to write into folders of other users in one
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    ctypes.CDLL(None).unshare(flags)


def _die_with_server() -> None:
    """The kernel kills this process when the decoding server, which waits for it, is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
