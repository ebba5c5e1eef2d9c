"""Processes that die: they end without any clean-up before a given effect, or at a given moment."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

Deed: TypeAlias = Callable[[], Callable[[], object]]
"""What a process does: it opens the backend, and returns what it then does with it."""

EFFECTS = frozenset(
    {
        *("fcntl.flock", "fcntl.lockf", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
        *("os.symlink", "os.truncate", "os.posix_spawn", "os.system", "subprocess.Popen", "sqlite3.connect"),
        *("ftplib.sendcmd", "http.client.send", "socket.sendmsg", "socket.sendto"),
    }
)
"""Audit events of what a process does to the world, besides opening files for writing."""

_READING = (b"GET ", b"HEAD ")
"""Beginnings of requests over HTTP that change nothing."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

HANGS = 120.0
"""Seconds after which a process is killed that neither ends nor dies."""


class End(IntEnum):
    """Exit codes of such a process."""

    SURVIVED = 0
    FAILED = 3
    DIED = 9


def before_effect(deed: Deed, effect: int) -> End:
    """Act as a process that dies before one of its effects: the outcome, SURVIVED if it has fewer."""

    def prepare() -> None:
        effects = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal effects
            if not _is_effect(event, arguments):
                return
            effects += 1
            if effects == effect:
                os._exit(End.DIED)

        signal.setitimer(signal.ITIMER_REAL, HANGS)
        sys.addaudithook(watch)

    return _outcome(_fork(deed, prepare))


def _is_effect(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
    if event == "http.client.send" and isinstance(arguments[1], bytes):
        return not arguments[1].startswith(_READING)
    return event in EFFECTS


def after_seconds(deed: Deed, seconds: float) -> End:
    """Act as a process that is killed after some time."""

    def prepare() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    return _outcome(_fork(deed, prepare))


def _fork(deed: Deed, prepare: Callable[[], None]) -> int:
    with warnings.catch_warnings():
        # the child needs nothing that other threads of the tests hold: it opens a backend of its own
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = End.FAILED
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        act = deed()
        prepare()
        act()
        code = End.SURVIVED
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _outcome(child: int) -> End:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return End.DIED if code == -signal.SIGALRM else End(code)
