"""Seccomp: a process of Linux gives up system calls that decoding never needs and no other limit refuses.

Source: include/uapi/linux/{seccomp,filter,audit}.h and the tables of system calls of x86_64 and aarch64.
Numbers from 424 on are the same everywhere. Rule: a refused call fails with EPERM. clone3, whose flags no
filter can see, and calls that are newer than this table fail with ENOSYS: the C library has another way.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from pipeline.decoding import write_filter

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of the filter: BPF_LD|W|ABS, BPF_JMP|JEQ|K, JGE|K, JSET|K, and BPF_RET|K."""

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in struct seccomp_data; of the arguments the lower half, on machines that begin with it."""

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS

_CLONE_THREAD = 0x00010000
_CLONE3 = 435
_NEWEST = 469
"""The greatest number that this table knows, of Linux 6.17."""

_EVERYWHERE = (
    *(424, 434, 438),  # pidfd_send_signal, pidfd_open, pidfd_getfd
    *(425, 426, 427),  # io_uring, which would carry out the other calls unseen
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen ... fspick, mount_setattr
    *(440, 443, 448),  # process_madvise, quotactl_fd, process_mrelease
    *(452, 463, 466, 467, 469),  # fchmodat2, setxattrat, removexattrat, open_tree_attr, file_setattr
)

# one line for each kind: modes, owners, times, extended attributes; signals; sockets; programs and processes;
# other processes; mounts and the kernel; memory that no limit counts; files by number, watches, devices
_REFUSED = {
    "x86_64": (
        *(90, 91, 268, 92, 93, 94, 260, 132, 235, 261, 280, 188, 189, 190, 197, 198, 199),
        *(129, 200, 297),
        *(41, 42, 43, 49, 50, 53, 288),
        *(57, 58, 59, 322),
        *(101, 141, 142, 144, 203, 251, 256, 272, 279, 308, 310, 311, 312, 314),
        *(135, 153, 155, 161, 163, 164, 165, 166, 159, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179),
        *(227, 246, 248, 249, 250, 298, 305, 313, 320, 321, 323, 103),
        *(29, 30, 31, 64, 68, 69, 240, 319),
        *(133, 259, 300, 304),
    ),
    "aarch64": (
        *(52, 53, 54, 55, 88, 5, 6, 7, 14, 15, 16),
        *(130, 138, 240),
        *(198, 199, 200, 201, 202, 203, 242),
        *(221, 281),
        *(117, 118, 119, 122, 30, 140, 238, 97, 239, 268, 270, 271, 272, 274),
        *(92, 58, 41, 51, 89, 170, 40, 39, 171, 224, 225, 142, 161, 162, 105, 106, 60),
        *(112, 104, 217, 218, 219, 241, 266, 273, 294, 280, 282, 116),
        *(190, 194, 195, 196, 186, 189, 180, 279),
        *(33, 262, 265),
    ),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# kill, tgkill; clone; fcntl, ioctl; prlimit64
_JUDGED = {"x86_64": (62, 234, 56, 72, 16, 302), "aarch64": (129, 131, 220, 25, 29, 261)}
_SIGNALLING = (8, 10, 15)
"""fcntl: F_SETOWN, F_SETSIG and F_SETOWN_EX have the kernel send a signal to another process."""
_HARMLESS = (0x5401, 0x5450, 0x5451)
"""ioctl: TCGETS, FIONCLEX and FIOCLEX; others change flags of files, or type into terminals."""

_Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_available() -> bool:
    """Whether this kernel filters calls, and this module has a table for its machine and this interpreter."""
    known = platform.machine() in _REFUSED and ctypes.sizeof(ctypes.c_void_p) == 8
    return sys.platform == "linux" and known and Path("/proc/sys/kernel/seccomp").exists()


def restrict_calls() -> bool:
    """Whether this process has given up the calls of the table, for good; False, and nothing changed, if the
    table does not have this machine, or the kernel no filters.
    """
    if not is_available():
        return False
    code = _HEAD + _packed(_judged(*_JUDGED[platform.machine()], own=os.getpid()))
    write_filter.gain_no_privileges()
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def _packed(instructions: Iterable[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _refused(machine: str) -> list[_Instruction]:
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE),  # the calls of a 32-bit program
        (_LOAD, 0, 0, _NUMBER),
        *_answer(_EQUAL, _CLONE3, _UNKNOWN),
        *(step for number in (*_EVERYWHERE, *_REFUSED[machine]) for step in _answer(_EQUAL, number, _REFUSE)),
        *_answer(_AT_LEAST, _NEWEST + 1, _UNKNOWN),  # those of x32 too
    ]


def _judged(  # noqa: PLR0913 - the numbers of the calls that are judged by an argument
    kill: int, tgkill: int, clone: int, fcntl: int, ioctl: int, limits: int, *, own: int
) -> list[_Instruction]:
    return [
        *_if(kill, _FIRST, _only((own,))),
        *_if(tgkill, _FIRST, _only((own,))),
        *_if(limits, _FIRST, _only((0, own))),
        *_if(clone, _FIRST, [*_answer(_ANY_BIT, _CLONE_THREAD, _ALLOW), (_RETURN, 0, 0, _REFUSE)]),
        *_if(fcntl, _SECOND, [step for command in _SIGNALLING for step in _answer(_EQUAL, command, _REFUSE)]),
        *_if(ioctl, _SECOND, _only(_HARMLESS)),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _answer(comparison: int, value: int, answer: int) -> list[_Instruction]:
    return [(comparison, 0, 1, value), (_RETURN, 0, 0, answer)]


def _only(values: Iterable[int]) -> list[_Instruction]:
    return [*(step for value in values for step in _answer(_EQUAL, value, _ALLOW)), (_RETURN, 0, 0, _REFUSE)]


def _if(number: int, offset: int, judged: list[_Instruction]) -> list[_Instruction]:
    """Judge one call by an argument; the number is loaded again for what follows."""
    return [(_EQUAL, 0, len(judged) + 2, number), (_LOAD, 0, 0, offset), *judged, (_LOAD, 0, 0, _NUMBER)]


_HEAD = _packed(_refused(platform.machine())) if platform.machine() in _REFUSED else b""
"""Made once, before the server forks: it is the same for every process."""
