"""A child process in its own session, with a log file; it dies with this process. Also free loopback ports.

In its own session, because Ctrl-C in the terminal must reach only this process, so that the stack stops in
order. Start it from the main thread: the kernel ties the child's life to the thread that started it.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.stack import home
from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20000, 32000
"""Below Linux's range of ephemeral ports (32768 to 60999): a port found free is not taken by another
program's outgoing connection before our server has bound it."""


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct free ports; all are bound at once during the search."""
    taken: list[socket.socket] = []
    try:
        while len(taken) < count:
            candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                candidate.bind((HOST, random.randint(LOWEST, HIGHEST)))  # noqa: S311 - no secret
            except OSError:
                candidate.close()
            else:
                taken.append(candidate)
        return tuple(taken_socket.getsockname()[1] for taken_socket in taken)
    finally:
        for taken_socket in taken:
            taken_socket.close()


def usable_port(given: str, setting: str) -> int:
    """The port that the setting gives; UsageRefused unless a server can listen there.

    Another program that listens there might answer in place of ours, and would get our requests.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
            # connections of an earlier server, which have not ended yet, are no obstacle
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            candidate.bind((HOST, int(given)))
            return int(candidate.getsockname()[1])
    except (OSError, OverflowError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageRefused(f"port {given} of {HOST} cannot be used: {reason} ({setting})") from error


def ask(port: int, question: bytes, expected: bytes, seconds: float = 0.3, host: str = HOST) -> bool:
    """Whether the server on `port` answers `question` with bytes that contain `expected`.

    The timeout is short on purpose: a server that accepts a connection during startup may never answer on it,
    but answers the next one at once.
    """
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(question)
            while expected not in answer and (piece := connection.recv(4096)):
                answer += piece
    except OSError:
        return False
    return expected in answer


DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
LOCK_SECONDS = 10.0
"""Seconds within which the server of a killed stack ends."""

LOG_BYTES = 100_000_000
"""Maximum size of a log in bytes; the previous log is kept, so a process uses at most twice that."""

LOG_TAIL_LINES = 20
"""Number of log lines shown when a process has died."""


RESTARTS, WITHIN = 8, 300.0
"""A process may restart RESTARTS times WITHIN seconds; its next death ends the stack."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds before a dead process is restarted; doubled for every recent restart."""

ANSWER_INTERVAL = 5.0
"""Seconds between two health checks of a process."""


@dataclass(frozen=True)
class Command:
    """A program to run, and how to detect that it is ready: a function, a file that it creates, or both."""

    name: str
    argv: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    clean: frozenset[int] = frozenset({0})
    """Return codes of an orderly exit."""
    stop_seconds: float = 10
    """Seconds between SIGTERM and SIGKILL."""
    lock: Path | None = None
    """A lock file beside its data that the process holds: no two processes ever use the same data."""
    ready: Callable[[], bool] = lambda: True
    ready_file: Path | None = None
    ready_seconds: float = 90
    answers: Callable[[], bool] | None = None
    """Whether the program answers now; None: no check beyond that it runs."""
    silent_seconds: float = 60
    """Seconds without an answer after which the process is killed and restarted; longer than a pause of a
    garbage collector or of a suspended machine."""

    def is_ready(self) -> bool:
        return (self.ready_file is None or self.ready_file.exists()) and self.ready()


class Process:
    """The process of a command, and its restarts; times are on the monotonic clock."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._child: subprocess.Popen[bytes] | None = None
        self.restarts: list[float] = []
        self.restart_at: float | None = None
        """When to restart the process."""
        self.starting_since: float | None = None
        """When the process was started; None once it is ready."""
        self.answered = self._asked = 0.0
        """When the process answered last, and when it was asked last."""

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def start(self) -> None:
        if self.running:
            raise ArklineError(f"{self.name} is already running", code=codes.PROCESS_DIED)
        command = self.command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        if command.ready_file is not None:
            command.ready_file.parent.mkdir(parents=True, exist_ok=True)
            command.ready_file.unlink(missing_ok=True)
        with command.log.open("ab") as log, self._lock() as descriptors:
            self._child = subprocess.Popen(
                [*_die_with_parent(), *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=command.folder,
                env={**os.environ, **command.environment},
                start_new_session=True,
                pass_fds=descriptors,
            )
        self.starting_since = time.monotonic()

    @contextmanager
    def _lock(self) -> Iterator[tuple[int, ...]]:
        """The lock's descriptors for the child to inherit; ours are closed once it has them."""
        path = self.command.lock
        if path is None:
            yield ()
            return
        lock = home.take(path, LOCK_SECONDS)
        if lock is None:
            raise ArklineError(
                f"{self.name}: another process works on {path.parent}: stop it first", code=codes.PROCESS_DIED
            )
        with lock:
            yield (lock.fileno(),)

    def is_silent(self, now: float) -> bool:
        """Check the process at intervals; True once it has not answered for too long."""
        answers, longest = self.command.answers, self.command.silent_seconds
        if answers is None or now - self._asked < min(ANSWER_INTERVAL, longest):
            return False
        # a supervisor that was itself suspended must not blame the process
        paused = now - self._asked > 2 * ANSWER_INTERVAL
        self._asked = now
        if paused or answers():
            self.answered = now
        return now - self.answered > longest

    def plan_restart(self, now: float) -> bool:
        """Schedule the next restart; False if the process has died too often."""
        recent = [moment for moment in self.restarts if now - moment < WITHIN]
        self.restarts = [*recent, now]
        self.restart_at = now + min(FIRST_PAUSE * 2 ** len(recent), LONGEST_PAUSE)
        return len(recent) < RESTARTS

    def terminate(self) -> None:
        """Ask the process to exit; a suspended process is resumed, so that it handles the signal."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)

    def limit_log(self) -> None:
        """Copy a log larger than LOG_BYTES to NAME.log.1 and truncate it; the process keeps appending.

        Lines written during the copy may be lost. OSError if the copy failed: the log is truncated even so.
        """
        log = self.command.log
        if log.exists() and log.stat().st_size > LOG_BYTES:
            try:
                shutil.copy(log, log.with_suffix(".log.1"))
            finally:
                os.truncate(log, 0)

    def send_signal(self, number: signal.Signals) -> None:
        self._started().send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL to the process and its process group."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float | None = None) -> int | None:
        """The return code; None if the process is still running after `seconds`."""
        if self._child is None:
            return None
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, seconds: float | None = None) -> int | None:
        """Send SIGTERM, then SIGKILL if the process still runs after `seconds`; returns the return code."""
        if self.running:
            self.terminate()
        if self.wait(self.command.stop_seconds if seconds is None else seconds) is None:
            self.kill()
        return self.returncode

    def log_tail(self, count: int = LOG_TAIL_LINES) -> str:
        try:
            text = self.command.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-count:]).expandtabs()

    def crash_error(self) -> ArklineError:
        """The error for a process that exited, or did not become ready in time."""
        log = self.log_tail() or "(the log is empty)"
        fate = "is not ready in time" if self.running else f"ended with code {self.returncode}"
        return ArklineError(
            f"{self.name} {fate}; the end of {self.command.log}:\n{log}", code=codes.PROCESS_DIED
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ArklineError(f"{self.name} has not been started", code=codes.PROCESS_DIED)
        return self._child


def _die_with_parent() -> tuple[str, ...]:
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return ()
    return (sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()))
