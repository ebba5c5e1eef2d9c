"""Commands and workers in a process of their own, forked from one that has loaded the libraries.

Most of a short command's time is the loading of SQLAlchemy, pydantic and the like; a worker's start has more.
`python -m` of this module with a socket's number starts the process that has loaded them. `run` asks it for a
command, `start` for a module that runs as a program.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

PROJECT = Path(__file__).parents[2]

LIBRARIES = (
    "anyio._backends._asyncio",
    "celery.app.amqp",
    "celery.app.routes",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "celery.worker.consumer",
    "entrypoints.web.in_process",
    "kombu.transport.redis",
    "pipeline.inventory.sql",
    "pipeline.storage.factory",
    "rich.progress",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "structlog",
    "typer._adapters",
)
"""What commands and workers load when they need it. No module of the project reads a setting when it is
loaded, except tasks.app."""


class Forks:
    """The process that forks a child for every command; it ends when this process does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, other = socket.socketpair()
        self._sending, self._starting = threading.Lock(), threading.Lock()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                cwd=PROJECT,
                env={**environment, "PYTHONPATH": str(PROJECT)},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fileno(self) -> int:
        """The socket that takes orders; a child that inherits it may send its own."""
        return self._socket.fileno()

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> tuple[int, str, str]:
        """Run `arkline ARGUMENTS`: its exit code and its two outputs."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self._ordered(("", arguments, environment, folder), out, err) as ours:
                ours.settimeout(seconds)
                with ours.makefile("r") as answers:
                    pid = int(answers.readline())
                    try:
                        code = int(answers.readline())
                    except TimeoutError:
                        os.kill(pid, signal.SIGKILL)
                        raise
            return code, _text(out.fileno()), _text(err.fileno())

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: BinaryIO,
    ) -> "Started":
        """Start `python -m MODULE ARGUMENTS` in a session of its own; it dies with this process."""
        with self._starting:
            _adopt_orphans(True)
            try:
                with (
                    self._ordered((module, arguments, environment, folder), log, log) as ours,
                    ours.makefile("r") as answers,
                ):
                    return Started(int(answers.readline()))
            finally:
                _adopt_orphans(False)

    @contextmanager
    def _ordered(
        self, order: tuple[str, Sequence[str], Mapping[str, str], Path], out: BinaryIO, err: BinaryIO
    ) -> Iterator[socket.socket]:
        """The socket with the answers to the order."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, tempfile.TemporaryFile() as written, Path(os.devnull).open("rb") as nothing:
                module, arguments, environment, folder = order
                written.write(json.dumps([module, [*arguments], {**environment}, str(folder)]).encode())
                written.flush()
                files = (written, nothing, out, err, theirs)
                with self._sending:
                    socket.send_fds(self._socket, [b"."], [file.fileno() for file in files])
            yield ours


class Started(subprocess.Popen[bytes]):
    """A process that was started for this one, and is its child since its own parent has ended."""

    def __init__(self, pid: int) -> None:
        self._adopted = pid
        super().__init__(("forked",))

    def _execute_child(self, *_: Any) -> None:
        self.pid = self._adopted
        self._child_created = True


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of Linux's prctl."""

CAN_START = sys.platform == "linux"
"""Whether a process can become the child of another one than its parent."""


def _adopt_orphans(yes: bool) -> None:
    """Whether processes below this one become its children when their parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


@cache
def forks() -> Forks:
    """Those of this test run."""
    return Forks({name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")})


def _text(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), encoding="utf-8") as stream:
        return stream.read()


def _serve(orders: socket.socket) -> Callable[[], None] | None:
    """Fork a child for every order. In a child: what it is to run; None at the end."""
    while True:
        message, descriptors, *_ = socket.recv_fds(orders, 1, 5)
        if not message:
            return None
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    orders.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    written, *streams, answers = descriptors
    module, arguments, environment, folder = json.loads(_text(written))
    (_fork_program if module else _fork_command)(answers)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module or "-c", *arguments]
    return (lambda: _run_module(module)) if module else import_module("entrypoints.cli.main").main


def _fork_command(answers: int) -> None:
    """Fork once more: the parent says how the command ended; returns in the child."""
    if child := os.fork():
        os.write(answers, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)


def _fork_program(answers: int) -> None:
    """Fork once more, and end: the child belongs to the process that asked for it; returns there."""
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.001)  # nothing tells a process that it has another parent
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.write(answers, f"{os.getpid()}\n".encode())


def _run_module(module: str) -> None:
    warnings.simplefilter("ignore")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _code_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return 0


def _end(code: int) -> NoReturn:
    """End as the interpreter does, without the half second in which it would free what the parent loaded."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the waiting processes ended
    signal.signal(signal.SIGINT, signal.default_int_handler)
    entries = import_module("entrypoints.cli.command_table").ENTRIES
    for name in (*(f"entrypoints.cli.commands.{entry.module}" for entry in entries), *LIBRARIES):
        import_module(name)
    assert "tasks.app" not in sys.modules, "it has the settings of another process"
    gc.collect()
    gc.freeze()  # otherwise each child begins with a search of all that is loaded, and so copies the memory
    if asked := _serve(socket.socket(fileno=int(sys.argv[1]))):
        _end(_code_of(asked))
