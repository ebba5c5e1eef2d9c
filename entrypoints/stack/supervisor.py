"""Start processes tier by tier, start again what dies, stop in reverse.

Whoever runs the stack calls `tend` a few times a second from the main thread; nothing here has a thread of
its own, so a process is always started by the thread that its life is tied to.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoints.stack.child import Command, Process
from entrypoints.stack.signals import StopSignals
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable

TICK = 0.1
"""Seconds between two looks at a process that one waits for."""

RESTARTS, WITHIN = 8, 300.0
"""A process that had to be started again this often within so many seconds ends the stack."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds before a dead process is started again; doubles with each recent restart."""


class StopWished(ArklineError):
    """Somebody asked the stack to stop while it was starting or at work."""

    error_kind = ErrorKind.INTERRUPTED


@dataclass(frozen=True)
class Service:
    """A command, and how to see that it is ready: a check, or a file that it makes (or both)."""

    command: Command
    ready: Callable[[], bool] = lambda: True
    ready_file: Path | None = None
    ready_seconds: float = 90
    gates: bool = True
    """Whether `start` waits for it; what nobody waits for is announced by `tend` once it is ready."""

    def is_ready(self) -> bool:
        return (self.ready_file is None or self.ready_file.exists()) and self.ready()


class Supervised:
    """One service's process and its restarts."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.process = Process(service.command)
        self.restarts: list[float] = []
        self.due: float | None = None
        """When to start it again, on the monotonic clock."""
        self.unannounced: float | None = None
        """When it was started, on the monotonic clock, while it is not ready yet."""

    @property
    def name(self) -> str:
        return self.process.name

    def start(self) -> None:
        if self.service.ready_file is not None:
            self.service.ready_file.parent.mkdir(parents=True, exist_ok=True)
            self.service.ready_file.unlink(missing_ok=True)
        self.process.start()
        self.unannounced = time.monotonic()

    def plan_restart(self, now: float) -> bool:
        """Note when to start it again; False if it has died too often."""
        recent = [moment for moment in self.restarts if now - moment < WITHIN]
        self.restarts = [*recent, now]
        self.due = now + min(FIRST_PAUSE * 2 ** len(recent), LONGEST_PAUSE)
        return len(recent) < RESTARTS


class Supervisor:
    def __init__(
        self,
        tiers: Sequence[Sequence[Service]],
        signals: StopSignals,
        say: Callable[[str], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.tiers = [[Supervised(service) for service in tier] for tier in tiers]
        self.signals = signals
        self.say = say
        self.changed = changed

    @property
    def processes(self) -> list[Process]:
        return [each.process for tier in self.tiers for each in tier]

    def start(self) -> None:
        for tier in self.tiers:
            for each in tier:
                each.start()
            while waiting := [each for each in tier if each.service.gates and not self._is_ready(each)]:
                self._pause(waiting)
        self.changed()

    def _is_ready(self, each: Supervised) -> bool:
        """Whether it has come up since it was started; says so when that is first seen."""
        if each.unannounced is None:
            return True
        if not each.service.is_ready():
            return False
        self.say(f"{each.name} is ready after {time.monotonic() - each.unannounced:.1f} s")
        each.unannounced = None
        return True

    def _pause(self, waiting: Sequence[Supervised]) -> None:
        if self.signals.received:
            raise StopWished("stopped on request while starting")
        for each in waiting:
            if not each.process.running:
                raise each.process.obituary()
            if each.unannounced and time.monotonic() - each.unannounced > each.service.ready_seconds:
                raise ServiceUnreachable(
                    f"{each.name} is not ready after {each.service.ready_seconds:.0f} s; the end of "
                    f"{each.service.command.log}:\n{each.process.last_lines()}"
                )
        time.sleep(TICK)

    def tend(self) -> None:
        """Start again what has died. Raises StopWished after a signal, ProcessDied if it dies too often."""
        if self.signals.received:
            raise StopWished("stopped on request")
        now = time.monotonic()
        for tier in self.tiers:
            for each in tier:
                self._tend(each, now)

    def _tend(self, each: Supervised, now: float) -> None:
        if each.process.running:
            self._is_ready(each)
            return
        if each.due is None:
            if not each.plan_restart(now):
                raise each.process.obituary()
            self.say(f"{each.process.obituary()}\nStarting {each.name} again.")
        elif now >= each.due:
            each.due = None
            each.start()
            self.changed()

    def tend_for(self, seconds: float) -> None:
        """Like time.sleep, with an eye on the processes."""
        deadline = time.monotonic() + seconds
        self.tend()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, TICK))
            self.tend()

    def stop(self) -> None:
        """Stop every tier, the last first; what a tier needs is still there while it stops."""
        heard = self.signals.count
        for tier in reversed(self.tiers):
            self._stop_tier([each.process for each in tier if each.process.running], heard)

    def _stop_tier(self, processes: list[Process], heard: int) -> None:
        began = time.monotonic()
        for process in processes:
            process.terminate()
        while any(process.running for process in processes):
            waited = time.monotonic() - began
            for process in processes:
                hurried = self.signals.count > heard
                if process.running and (hurried or waited > process.command.stop_seconds):
                    self.say(f"{process.name} is still there after {waited:.0f} s: killed")
                    process.kill()
            time.sleep(TICK / 2)
        for process in processes:
            if not process.ended_well():
                self.say(f"{process.name} ended with code {process.returncode}")
