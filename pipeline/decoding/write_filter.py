"""Landlock: a process of Linux gives up the right to change files, except below one folder, and to read
those that its work does not need.

Source: Documentation/userspace-api/landlock.rst and include/uapi/linux/landlock.h of Linux. These system
calls have the same numbers on x86_64, aarch64 and every other architecture but alpha.
"""

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
"""Flag of the first call: return the version of Landlock instead of a ruleset."""

_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_WRITE_FILE = 1 << 1
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_OF_VERSION_1 = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Writing, removing and creating, of every kind of file; not executing."""

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


def is_available() -> bool:
    return _version() > 0


def restrict_files(folder: str, readable: Iterable[str]) -> bool:
    """Whether this process may from now on change no file but those below `folder`; empty: none at all.

    Below `readable`, which are files and folders, it may read; those that do not exist are left out.

    False, and nothing changed, where the kernel has no Landlock. Files that are open stay open.
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
        for path in readable:
            with suppress(FileNotFoundError):
                _allow(descriptor, path, _READ_FILE | (_READ_DIR if Path(path).is_dir() else 0))
        gain_no_privileges()
        _call(_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)
    return True


def gain_no_privileges() -> None:
    """No program that this process starts gets more rights: the kernel's condition for filters."""
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
    """0 where the kernel has no Landlock, or has it switched off."""
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
