"""Commands in a process of their own, forked from one that has loaded the libraries.

Most of a short command's time is the loading of SQLAlchemy, pydantic and the like. `python -m` of this module
with a socket's number starts the process that has loaded them; `run` asks it for a command.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

PROJECT = Path(__file__).parents[2]

LIBRARIES = (
    "entrypoints.web.in_process",
    "kombu.transport.redis",
    "pipeline.inventory.sql",
    "pipeline.storage.factory",
    "rich.progress",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "structlog",
)
"""What commands load when they need it. No module of the project reads a setting when it is loaded, except
tasks.app."""


class Forks:
    """The process that forks a child for every command; it ends when this process does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, other = socket.socketpair()
        self._sending = threading.Lock()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                cwd=PROJECT,
                env={**environment, "PYTHONPATH": str(PROJECT)},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float
    ) -> tuple[int, str, str]:
        """Run `arkline ARGUMENTS`: its exit code and its two outputs."""
        order = json.dumps([*arguments]), json.dumps({**environment}), str(folder)
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with theirs, tempfile.TemporaryFile() as written:
                written.write(json.dumps(order).encode())
                written.flush()
                descriptors = [written.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
                with self._sending:
                    socket.send_fds(self._socket, [b"."], descriptors)
            ours.settimeout(seconds)
            with ours.makefile("r") as answers:
                pid = int(answers.readline())
                try:
                    code = int(answers.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise
            return code, _text(out.fileno()), _text(err.fileno())


@cache
def forks() -> Forks:
    """Those of this test run."""
    return Forks({name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")})


def _text(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), encoding="utf-8") as stream:
        return stream.read()


def _serve(orders: socket.socket) -> bool:
    """Fork a child for every order; True in a child, which is to run its command, and False at the end."""
    while True:
        message, descriptors, *_ = socket.recv_fds(orders, 1, 4)
        if not message:
            return False
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    orders.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return _fork_command(*descriptors)


def _fork_command(written: int, out: int, err: int, answers: int) -> bool:
    """Fork once more: the parent says how the command ended; True in the child."""
    child = os.fork()
    if child:
        os.write(answers, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    arguments, environment, folder = json.loads(_text(written))
    os.dup2(out, 1)
    os.dup2(err, 2)
    for descriptor in (written, out, err, answers):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(json.loads(environment))
    os.chdir(folder)
    sys.argv = ["-c", *json.loads(arguments)]
    return True


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
    main = import_module("entrypoints.cli.main").main
    entries = import_module("entrypoints.cli.command_table").ENTRIES
    for name in (*(f"entrypoints.cli.commands.{entry.module}" for entry in entries), *LIBRARIES):
        import_module(name)
    assert "tasks.app" not in sys.modules, "it has the settings of another process"
    if _serve(socket.socket(fileno=int(sys.argv[1]))):
        _end(_code_of(main))
