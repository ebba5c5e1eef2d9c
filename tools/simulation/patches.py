"""Time, threads, chance and effects on files, taken from the world while a history runs.

The names are replaced where Python keeps them (`time.monotonic`, `threading.Thread.start`, `os.replace`), so
that production code has no branch for the simulation, and libraries get virtual time too. `datetime.now` is C
code: the class is replaced in the modules of the project.
"""

import fcntl
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from tools.simulation import clock
from tools.simulation.disk import Disk
from tools.simulation.replacing import replacing
from tools.simulation.world import Task, World

OURS = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")
"""The packages whose `datetime` is replaced."""


_current: list[World] = []


def world() -> World:
    """That of the current history; locks and thread-local values outlive none."""
    return _current[0]


class Lock:
    """A lock of the world's tasks: whoever waits lets others continue."""

    def __init__(self) -> None:
        self._locked = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        own = world()
        deadline = own.now + timeout if timeout >= 0 else None
        while self._locked:
            if not blocking or (deadline is not None and own.now >= deadline):
                return False
            task = own.current
            assert task is not None, "the preparation of a history waits for a lock"
            self._waiting.append(task)
            own.park(None if deadline is None else deadline - own.now)
            if task in self._waiting:
                self._waiting.remove(task)
        self._locked = True
        return True

    def release(self) -> None:
        if not self._locked:
            raise RuntimeError("release unlocked lock")
        self._locked = False
        while self._waiting:
            task = self._waiting.pop(0)
            if task.process.runs and not task.ended:
                world().wake(task)
                break

    def locked(self) -> bool:
        return self._locked

    def _at_fork_reinit(self) -> None:
        self._locked = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Local:
    """Replaces `threading.local`: one set of values for each task."""

    def _values(self) -> SimpleNamespace:
        task = world().current
        return (_OUTSIDE if task is None else task.values).setdefault(self, SimpleNamespace())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._values(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._values(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._values(), name)


_OUTSIDE: dict[object, SimpleNamespace] = {}


class _Kind(type(datetime)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


class Datetime(datetime, metaclass=_Kind):
    """`datetime` in the modules of the project: `now` is virtual."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return datetime.fromtimestamp(world().now, tz)  # type: ignore[return-value]


def _start(self: threading.Thread) -> None:
    own = world()
    task = own.current
    assert task is not None, "the preparation of a history starts a thread"
    self._simulated_end = threading.Event()  # type: ignore[attr-defined]
    started = own.spawn(task.process, partial(_run_thread, self))
    started.thread = self
    self._started.set()  # type: ignore[attr-defined]


def _run_thread(self: threading.Thread) -> None:
    try:
        self.run()
    except Exception as error:
        world().note(self.name, "thread failed", repr(error))
        raise
    finally:
        self._simulated_end.set()  # type: ignore[attr-defined]


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    self._simulated_end.wait(timeout)  # type: ignore[attr-defined]


def _is_alive(self: threading.Thread) -> bool:
    return self._started.is_set() and not self._simulated_end.is_set()  # type: ignore[attr-defined]


_MAIN = threading.main_thread()


def _flock(real: Callable[[Any, int], None], file: Any, operation: int) -> None:
    """A lock of a file: who waits lets others continue; the lock ends with the simulated process."""
    while True:
        try:
            real(file, operation | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if operation & fcntl.LOCK_NB:
                raise
            world().park(0.01)
    task = world().current
    if task is not None and isinstance(file, int) and not operation & fcntl.LOCK_UN:
        task.process.locked[file] = None


def _close(real: Callable[[int], None], descriptor: int) -> None:
    task = world().current
    if task is not None:
        task.process.locked.pop(descriptor, None)
    real(descriptor)


def _with_places(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a place before and after it: a process may die at both."""

    def effect(*arguments: Any, **options: Any) -> Any:
        own = world()
        what = f"{kind} {_shown(arguments)}"
        own.pass_place("file", f"before {what}")
        if own.current is not None:
            own.on_effect(own.current.process, kind, arguments)
        result = real(*arguments, **options)
        own.pass_place("file", f"after {what}")
        return result

    return effect


def _shown(arguments: tuple[Any, ...]) -> str:
    """The names of files without what differs between runs, as descriptors and folders do."""
    return " ".join(Path(one).name for one in arguments if isinstance(one, str | os.PathLike))


EFFECTS = ("replace", "rename", "link", "unlink", "rmdir", "mkdir", "fsync")
"""Functions of `os` that change what another process sees, or that a crash leaves."""


@contextmanager
def patched(own: World, disk: Disk | None = None) -> Iterator[None]:
    """The world's time, threads, chance and places, for this block; and its disk, if it has one."""
    _current[:] = [own]
    chance = random.Random(f"secrets {own.seed}")
    clock.use(lambda: own.now)
    try:
        with replacing() as put:
            for where, name, value in _values(own, chance):
                put(where, name, value)
            if disk is not None:
                disk.replace(put)
            for name in EFFECTS:
                put(os, name, _with_places(name, getattr(os, name)))
            for module in [one for name, one in sys.modules.items() if name.partition(".")[0] in OURS]:
                if getattr(module, "datetime", None) is datetime:
                    put(module, "datetime", Datetime)
                if hasattr(module, "SimpleQueue"):
                    put(module, "SimpleQueue", queue._PySimpleQueue)  # type: ignore[attr-defined]
            random.seed(own.seed)
            yield
    finally:
        clock.use(clock.REAL)


def _values(own: World, chance: random.Random) -> Iterator[tuple[Any, str, Any]]:
    """Module or class, the name in it, and its value while a history runs."""
    for name in ("time_ns", "monotonic_ns"):
        yield time, name, lambda: int(own.now * 1e9)
    yield time, "time", lambda: own.now
    yield time, "sleep", lambda seconds: world().park(seconds)
    yield threading, "_time", lambda: own.now
    yield threading, "Lock", Lock
    yield threading, "_allocate_lock", Lock
    yield threading, "RLock", threading._PyRLock  # type: ignore[attr-defined]
    yield threading, "local", Local
    yield threading, "get_ident", lambda: 1 + (task.number if (task := world().current) else 0)
    yield threading, "current_thread", lambda: task.thread if (task := world().current) else _MAIN
    yield threading, "main_thread", lambda: task.process.thread if (task := world().current) else _MAIN
    yield threading.Thread, "start", _start
    yield threading.Thread, "join", _join
    yield threading.Thread, "is_alive", _is_alive
    yield os, "urandom", chance.randbytes
    yield random, "_urandom", chance.randbytes
    yield os, "getpid", lambda: own.current.process.pid if own.current else 1
    yield os, "_exit", lambda code: own.kill(own.current.process, f"_exit {code}") if own.current else None
    yield os, "close", partial(_close, os.close)
    yield fcntl, "flock", partial(_flock, fcntl.flock)
