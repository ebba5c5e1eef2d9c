"""The limits of a decoding process, which the process sets for itself before it reads a foreign byte.

A limit that the system does not have, or does not let this process set, is left out.
"""

import ctypes
import os
import resource
import signal
import struct
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

HARD = 5
"""Seconds of processor time from the signal that ends a decoder, which it may ignore, to its certain end."""

_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)
"""struct __user_cap_header_struct: version 3, this process."""
_CAP_SYS_RESOURCE = 1 << 24
"""To raise hard limits, which root has."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Limits:
    memory: int
    """Bytes of address space."""
    seconds: int
    """Processor time before the first byte, and without progress."""
    most: tuple[int, int] = (0, 0)
    """The bytes and the files that the request may take at most, whatever progress the process reports."""
    file_bytes: int = 0
    """Bytes of one file that is written."""
    asks: bool = False
    """Whether the worker is asked before bytes are written."""
    writes: str = ""
    """The folder below which files may be written; empty: nowhere."""
    reads: tuple[str, ...] = ()
    """The files and folders of the deposit that may be read."""


def apply(limits: Limits) -> tuple[str, ...]:
    """The protections that the kernel has not given."""
    if sys.platform == "linux":
        _die_with_server()
        _leave_network()
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_AS, limits.memory)
    _set(resource.RLIMIT_NOFILE, OPEN_FILES)
    _set(resource.RLIMIT_FSIZE, limits.file_bytes)
    _set(resource.RLIMIT_NPROC, 0)
    _set(resource.RLIMIT_CPU, _seconds(limits, *limits.most) + HARD)
    if sys.platform == "linux":
        _keep_hard_limits()
    files = write_filter.restrict_files(limits.writes, (*limits.reads, *_LIBRARY, *_installed()))
    calls = call_filter.restrict_calls()
    allow(limits, Progress())
    given = {"rules for files (Landlock)": files, "a filter of system calls (seccomp)": calls}
    return tuple(name for name, has in given.items() if not has)


def _installed() -> list[str]:
    """The folders of installed packages, and no other place of modules: secrets may be beside those."""
    return [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def allow(limits: Limits, done: Progress) -> None:
    """Processor time for the work that is done; the kernel ends the process after it."""
    most = _seconds(limits, *limits.most)
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (min(_seconds(limits, done.bytes, done.files), most), hard))


def _seconds(limits: Limits, size: int, files: int) -> int:
    return limits.seconds + size // BYTES_PER_SECOND + files // FILES_PER_SECOND


def _set(limit: int, value: int) -> None:
    with suppress(OSError, ValueError):
        resource.setrlimit(limit, (value, value))


def _keep_hard_limits() -> None:
    """No process of root raises its hard limits either, from now on."""
    libc, data = ctypes.CDLL(None), ctypes.create_string_buffer(24)
    if libc.capget(_CAPABILITIES, data) == 0:
        words = list(struct.unpack("=6I", data.raw))  # effective, permitted, inheritable; their upper halves
        words[:3] = [word & ~_CAP_SYS_RESOURCE for word in words[:3]]
        libc.capset(_CAPABILITIES, struct.pack("=6I", *words))


def _leave_network() -> None:
    """Into a network of its own, without any interface; where that is not permitted, nothing changes."""
    # root needs no user namespace, and would lose the right to write into folders of other users in one
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    ctypes.CDLL(None).unshare(flags)


def _die_with_server() -> None:
    """The kernel kills this process when the decoding server, which waits for it, is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
