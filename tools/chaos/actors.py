"""Processes of the cluster; a process that dies is restarted, as a supervisor would do."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from entrypoints.stack.child import Command, Process
from tests.support.processes import await_ready

PAUSE = 0.5
"""Seconds between a death and the restart."""


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Actor:
    """One process of the repository; call `poll` several times a second from the main thread."""

    def __init__(self, command: Command) -> None:
        self.process = Process(command)
        self.starts = 0
        self._due: float | None = None
        self._until: float | None = None
        """When a process that was asked to stop is killed."""
        self._before = 0
        """The number of starts before the last restart."""

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def pids(self) -> list[int]:
        """The process and its children."""
        return [self.process.pid, *children(self.process.pid)] if self.running else []

    @property
    def pool(self) -> list[int]:
        return self.pids[1:]

    def start(self) -> None:
        self._due = self._until = None
        self.starts += 1
        self.process.start()

    def ready(self) -> bool:
        return self.running and self.process.command.is_ready()

    def await_ready(self) -> None:
        await_ready(self.process, self.process.command.is_ready)

    def kill(self, pause: float = PAUSE) -> None:
        """SIGKILL the whole group; it is restarted after `pause` seconds."""
        self.process.kill()
        self._due = time.monotonic() + pause

    def ask_to_stop(self, seconds: float) -> None:
        """SIGTERM, then SIGKILL if it is still running after `seconds`."""
        if self.running:
            self.process.terminate()
            self._until = time.monotonic() + seconds

    def restart(self) -> None:
        """Stop it in order; `poll` restarts it."""
        self._before = self.starts
        self.ask_to_stop(self.process.command.stop_seconds)

    def restarted(self) -> bool:
        return self.starts > self._before and self.ready()

    def freeze(self) -> list[int]:
        """Stop it and its children with SIGSTOP; returns their pids, to be thawed."""
        pids = self.pids
        for pid in pids:
            send(pid, signal.SIGSTOP)
        return pids

    def poll(self) -> None:
        now = time.monotonic()
        if self.running:
            if self._until is not None and now > self._until:
                self.kill()
        elif self._due is None:
            self._due = now + PAUSE
        elif now >= self._due:
            self.start()

    def thaw(self) -> None:
        for pid in self.pids:
            send(pid, signal.SIGCONT)
