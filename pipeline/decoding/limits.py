"""The limits of a decoding process, which the process sets on itself before it reads any untrusted byte.

A limit that the system does not have, or does not let this process set, is skipped.

Landlock: a Linux process gives up the right to change files, except below one folder, and to read files
that its work does not need. Source: Documentation/userspace-api/landlock.rst and
include/uapi/linux/landlock.h of Linux. These system calls have the same numbers on x86_64, aarch64 and
every other architecture but alpha.

Seccomp: a Linux process gives up system calls that decoding never needs and no other limit refuses.
Source: include/uapi/linux/{seccomp,filter,audit}.h and the tables of system calls of x86_64 and aarch64.
Numbers from 424 on are the same everywhere. Rule: a refused call fails with EPERM. clone3, whose flags no
filter can see, and calls newer than this table fail with ENOSYS, so that the C library falls back.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.attempt import Progress
from pipeline.checks import BYTES_PER_SECOND, Access

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
"""Flag of the first call: return Landlock's version instead of a ruleset."""

_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_WRITE_FILE = 1 << 1
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_OF_VERSION_1 = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Writing, removing and creating every kind of file; not executing."""

_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REFER = 1 << 13
"""Renaming and linking into another folder; since version 2."""
_TRUNCATE = 1 << 14
"""Since version 3."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restricts_files() -> bool:
    return _version() > 0


def restrict_files(folder: str, readable: Iterable[str]) -> bool:
    """Let this process change files below `folder` only (none if empty), and read those and `readable` only.

    `readable` has files and folders; those that do not exist are skipped. Open files stay open.
    Returns False, with nothing changed, if the kernel has no Landlock.
    """
    version = _version()
    if not version:
        return False
    truncate = _TRUNCATE if version >= 3 else 0
    ruleset = _Ruleset(_OF_VERSION_1 | _READ_FILE | _READ_DIR | truncate | (_REFER if version >= 2 else 0))
    descriptor = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    try:
        if folder:
            changes = _WRITE_FILE | _MAKE_DIR | _MAKE_REG | truncate
            _allow(descriptor, folder, changes | _READ_FILE | _READ_DIR)
        _allow(descriptor, os.devnull, _WRITE_FILE | _READ_FILE)
        for path in readable:
            with suppress(FileNotFoundError):
                _allow(descriptor, path, _READ_FILE | (_READ_DIR if Path(path).is_dir() else 0))
        gain_no_privileges()
        _call(_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)
    return True


def gain_no_privileges() -> None:
    """Let no program that this process starts gain privileges: the kernel's condition for filters."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error()


def _allow(ruleset: int, folder: str, access: int) -> None:
    parent = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(access, parent)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(parent)


def _version() -> int:
    """Landlock's version; 0 where the kernel lacks Landlock or has disabled it."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def _call(number: int, *arguments: object) -> int:
    # without the conversion, the upper half of a register would be undefined on some architectures
    wide = (ctypes.c_long(value) if isinstance(value, int) else value for value in (number, *arguments))
    result = int(ctypes.CDLL(None, use_errno=True).syscall(*wide))
    if result < 0:
        raise _error()
    return result


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of the filter: BPF_LD|W|ABS, BPF_JMP|JEQ|K, JGE|K, JSET|K, and BPF_RET|K."""

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in struct seccomp_data; for arguments, of the lower half on little-endian machines."""

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS

_CLONE_THREAD = 0x00010000
_CLONE3 = 435
_NEWEST = 469
"""The greatest number in this table, as of Linux 6.17."""

_EVERYWHERE = (
    *(424, 434, 438),  # pidfd_send_signal, pidfd_open, pidfd_getfd
    *(425, 426, 427),  # io_uring, which would carry out the other calls unfiltered
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen ... fspick, mount_setattr
    *(440, 443, 448),  # process_madvise, quotactl_fd, process_mrelease
    *(452, 463, 466, 467, 469),  # fchmodat2, setxattrat, removexattrat, open_tree_attr, file_setattr
)

# one line per kind: modes, owners, times, extended attributes, sizes by name, which Landlock refuses since
# version 3 only; signals; sockets that accept;
# other processes; mounts and the kernel; memory that no limit counts; files by number, watches, devices
_REFUSED = {
    "x86_64": (
        *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 76),
        *(129, 200, 297),
        *(43, 49, 50, 288),
        *(101, 141, 142, 144, 203, 251, 256, 272, 279, 308, 310, 311, 312, 314),
        *(135, 153, 155, 161, 163, 164, 165, 166, 159, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179),
        *(227, 246, 248, 249, 250, 298, 305, 313, 320, 321, 323, 103),
        *(29, 30, 31, 64, 68, 69, 240, 319),
        *(133, 259, 300, 304),
    ),
    "aarch64": (
        *(52, 53, 54, 55, 88, 5, 6, 7, 14, 15, 16, 45),
        *(130, 138, 240),
        *(200, 201, 202, 242),
        *(117, 118, 119, 122, 30, 140, 238, 97, 239, 268, 270, 271, 272, 274),
        *(92, 58, 41, 51, 89, 170, 40, 39, 171, 224, 225, 142, 161, 162, 105, 106, 60),
        *(112, 104, 217, 218, 219, 241, 266, 273, 294, 280, 282, 116),
        *(190, 194, 195, 196, 186, 189, 180, 279),
        *(33, 262, 265),
    ),
}
_SOCKETS = {"x86_64": (41, 42, 53), "aarch64": (198, 199, 203)}
"""socket, connect, socketpair."""
_PROGRAMS = {"x86_64": (57, 58, 59, 322), "aarch64": (221, 281)}
"""fork, vfork, execve, execveat."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# kill, tgkill; clone; fcntl, ioctl; prlimit64
_JUDGED = {"x86_64": (62, 234, 56, 72, 16, 302), "aarch64": (129, 131, 220, 25, 29, 261)}
_SIGNALLING = (8, 10, 15)
"""fcntl: F_SETOWN, F_SETSIG and F_SETOWN_EX make the kernel send a signal to another process."""
_HARMLESS = (0x5401, 0x5450, 0x5451)
"""ioctl: TCGETS, FIONCLEX and FIOCLEX; others change file flags or type into terminals."""
_NONBLOCKING = 0x5421
"""ioctl: FIONBIO, by which a socket gets a timeout."""

_Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restricts_calls() -> bool:
    """Whether this kernel filters calls and this module has a table for the machine and the interpreter."""
    known = platform.machine() in _REFUSED and ctypes.sizeof(ctypes.c_void_p) == 8
    return sys.platform == "linux" and known and Path("/proc/sys/kernel/seccomp").exists()


def restrict_calls(*, sockets: bool = False, programs: bool = False) -> bool:
    """Give up the calls of the table permanently, but for those that `sockets` and `programs` need.

    Returns False, with nothing changed, if the table lacks this machine or the kernel has no filters.
    """
    if not restricts_calls():
        return False
    machine = platform.machine()
    judged = _judged(*_JUDGED[machine], own=os.getpid(), sockets=sockets, programs=programs)
    head = _packed(_refused(machine, sockets=sockets, programs=programs)) if sockets or programs else _HEAD
    code = head + _packed(judged)
    gain_no_privileges()
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _packed(instructions: Iterable[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _refused(machine: str, *, sockets: bool = False, programs: bool = False) -> list[_Instruction]:
    more = (*(() if sockets else _SOCKETS[machine]), *(() if programs else _PROGRAMS[machine]))
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE),  # the calls of a 32-bit program
        (_LOAD, 0, 0, _NUMBER),
        *_answer(_EQUAL, _CLONE3, _UNKNOWN),
        *(
            step
            for number in (*_EVERYWHERE, *_REFUSED[machine], *more)
            for step in _answer(_EQUAL, number, _REFUSE)
        ),
        *_answer(_AT_LEAST, _NEWEST + 1, _UNKNOWN),  # x32's calls too
    ]


def _judged(  # noqa: PLR0913 - the numbers of the calls that are judged by an argument
    kill: int,
    tgkill: int,
    clone: int,
    fcntl: int,
    ioctl: int,
    limits: int,
    *,
    own: int,
    sockets: bool,
    programs: bool,
) -> list[_Instruction]:
    new_process = _ALLOW if programs else _REFUSE
    controls = (*_HARMLESS, _NONBLOCKING) if sockets else _HARMLESS
    return [
        *_if(kill, _FIRST, _only((own, 0) if programs else (own,))),
        *_if(tgkill, _FIRST, _only((own,))),
        *_if(limits, _FIRST, _only((0, own))),
        *_if(clone, _FIRST, [*_answer(_ANY_BIT, _CLONE_THREAD, _ALLOW), (_RETURN, 0, 0, new_process)]),
        *_if(fcntl, _SECOND, [step for command in _SIGNALLING for step in _answer(_EQUAL, command, _REFUSE)]),
        *_if(ioctl, _SECOND, _only(controls)),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _answer(comparison: int, value: int, answer: int) -> list[_Instruction]:
    return [(comparison, 0, 1, value), (_RETURN, 0, 0, answer)]


def _only(values: Iterable[int]) -> list[_Instruction]:
    return [*(step for value in values for step in _answer(_EQUAL, value, _ALLOW)), (_RETURN, 0, 0, _REFUSE)]


def _if(number: int, offset: int, judged: list[_Instruction]) -> list[_Instruction]:
    """Judge one call by an argument; reloads the number for the next instructions."""
    return [(_EQUAL, 0, len(judged) + 2, number), (_LOAD, 0, 0, offset), *judged, (_LOAD, 0, 0, _NUMBER)]


_HEAD = _packed(_refused(platform.machine())) if platform.machine() in _REFUSED else b""
"""Made once, before the server forks: the same for every process."""


FILES_PER_SECOND = 1000
"""Files for each further second of processor time; the disks of this project's tests create about 5,000."""

OPEN_FILES = 32
"""Enough for a container, one file that is written, and the interpreter's own."""

_LIBRARY = (
    *{sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")},
    str(Path(__file__).resolve().parents[1]),
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache"),
)
"""Python's modules, this package, and shared libraries: a module may be loaded on first use."""

PROGRAMS = ("/bin", "/sbin", "/usr", "/opt", "/etc/alternatives", "/dev/null", "/dev/urandom")
"""What a check may read besides, if it starts programs: these and their data."""

HARD = 5
"""Seconds of processor time between the first signal, which a decoder may ignore, and SIGKILL."""

_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0)
"""struct __user_cap_header_struct: version 3, this process."""
_CAP_SYS_RESOURCE = 1 << 24
"""The capability to raise hard limits, which root has."""

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Limits:
    memory: int
    """Maximum bytes of address space."""
    seconds: int
    """Processor time before the first byte, and without progress."""
    most: tuple[int, int] = (0, 0)
    """The bytes and files that count for processor time at most, whatever progress the process reports."""
    file_bytes: int = 0
    """Maximum bytes of one file that is written."""
    asks: bool = False
    """Whether the process asks the worker before writing bytes."""
    writes: str = ""
    """The folder below which files may be written; empty: nowhere."""
    reads: tuple[str, ...] = ()
    """The files and folders of the deposit that may be read."""


FILES = "rules for files (Landlock)"
CALLS = "a filter of system calls (seccomp)"
NETWORK = "a network of its own"


def apply(limits: Limits) -> tuple[str, ...]:
    """Set the limits; returns the protections that the kernel lacks."""
    if sys.platform == "linux":
        _die_with_server()
        _leave_network()
    _set(resource.RLIMIT_NPROC, 0)
    _set(resource.RLIMIT_CPU, _seconds(limits, *limits.most) + HARD)
    missing = _confine(limits.memory, OPEN_FILES, limits.file_bytes, limits.writes, limits.reads)
    allow(limits, Progress())
    return missing


def apply_access(access: Access, reads: Iterable[str]) -> tuple[str, ...]:
    """As `apply`, for the process of a check, which lasts: its worker limits the time of each file.

    It writes no file. Threads are free, since Go and Java need them; processes are for `access.programs`.
    """
    isolated = access.network or sys.platform != "linux" or _leave_network()
    programs = PROGRAMS if access.programs else ()
    readable = (*reads, *access.reads, *programs)
    missing = _confine(access.memory, access.open_files, 0, "", readable, access)
    return (*missing, *(() if isolated else (NETWORK,)))


def _confine(
    memory: int,
    open_files: int,
    file_bytes: int,
    writes: str,
    reads: Iterable[str],
    access: Access = Access(),  # noqa: B008 - frozen
) -> tuple[str, ...]:
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_AS, memory)
    _set(resource.RLIMIT_NOFILE, open_files)
    _set(resource.RLIMIT_FSIZE, file_bytes)
    if sys.platform == "linux":
        _keep_hard_limits()
    files = restrict_files(writes, (*reads, *_LIBRARY, *_installed()))
    calls = restrict_calls(sockets=access.sockets or access.network, programs=access.programs)
    given = {FILES: files, CALLS: calls}
    return tuple(name for name, has in given.items() if not has)


def _installed() -> list[str]:
    """The folders of installed packages only: other module folders may have secrets beside the modules."""
    return [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def allow(limits: Limits, done: Progress) -> None:
    """Grant processor time for the work done; the kernel ends the process when the time is used up."""
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
    """Keep even a process of root from raising its hard limits."""
    libc, data = ctypes.CDLL(None), ctypes.create_string_buffer(24)
    if libc.capget(_CAPABILITIES, data) == 0:
        words = list(struct.unpack("=6I", data.raw))  # effective, permitted, inheritable; their upper halves
        words[:3] = [word & ~_CAP_SYS_RESOURCE for word in words[:3]]
        libc.capset(_CAPABILITIES, struct.pack("=6I", *words))


def _leave_network() -> bool:
    """Move into a network namespace without interfaces; False, with nothing changed, if that is refused."""
    # root needs no user namespace, in which it could not write into other users' folders
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    return bool(ctypes.CDLL(None).unshare(flags) == 0)


def _die_with_server() -> None:
    """Have the kernel kill this process when the decoding server, its parent, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
