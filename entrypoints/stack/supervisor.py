"""Starts processes tier by tier, restarts a process that dies or does not answer, stops in reverse order.

The owner of the stack calls `poll` a few times a second from the main thread; the supervisor has no thread,
so a process is always started by the thread that the kernel ties its life to.

Ctrl-C, SIGTERM and a closed terminal request an orderly stop; a second signal requests an immediate stop.
The handler only counts the signals, and the main loop reads the count: an exception raised in a handler
could interrupt an orderly stop at any line.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from entrypoints.stack.child import Command, Process
from operations.run import Stopped
from pipeline import codes
from pipeline.errors import ServiceUnreachable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    def __init__(self) -> None:
        self.count = 0

    @property
    def received(self) -> bool:
        return self.count > 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Count the signals until the block ends; only in the main thread."""
    signals = StopSignals()
    before = {number: signal.signal(number, signals._receive) for number in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


TICK = 0.1
"""Seconds between two checks of a process."""

RESTARTS, WITHIN = 8, 300.0
"""Restarts of one process within so many seconds, after which its next death ends the stack."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds before a dead process is restarted; doubled with every recent restart."""

ANSWER_INTERVAL = 5.0
"""Seconds between two questions to a service that has to answer."""


@dataclass(frozen=True)
class Service:
    """A command and its readiness check: a function, a file that the process creates, or both."""

    command: Command
    ready: Callable[[], bool] = lambda: True
    ready_file: Path | None = None
    ready_seconds: float = 90
    answers: Callable[[], bool] | None = None
    """Whether the service answers now; None: a running process is enough."""
    silent_seconds: float = 60
    """Seconds without an answer after which the process is killed and started again. A pause of a garbage
    collector, or of a suspended machine, is shorter."""

    def is_ready(self) -> bool:
        return (self.ready_file is None or self.ready_file.exists()) and self.ready()


class Supervised:
    """The process of one service, and its restarts."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.process = Process(service.command)
        self.restarts: list[float] = []
        self.restart_at: float | None = None
        """When to restart the process, on the monotonic clock."""
        self.starting_since: float | None = None
        """When the process was started, on the monotonic clock; None once it is ready."""
        self.answered = self.asked = 0.0
        """When the service answered last, and when it was asked last, on the monotonic clock."""

    @property
    def name(self) -> str:
        return self.process.name

    def start(self) -> None:
        if self.service.ready_file is not None:
            self.service.ready_file.parent.mkdir(parents=True, exist_ok=True)
            self.service.ready_file.unlink(missing_ok=True)
        self.process.start()
        self.starting_since = time.monotonic()

    def is_silent(self, now: float) -> bool:
        """Ask the service now and then; True once it has not answered for too long."""
        answers = self.service.answers
        if answers is None or now - self.asked < min(ANSWER_INTERVAL, self.service.silent_seconds):
            return False
        # a supervisor that was suspended itself has no reason to doubt the service
        paused = now - self.asked > 2 * ANSWER_INTERVAL
        self.asked = now
        if paused or answers():
            self.answered = now
        return now - self.answered > self.service.silent_seconds

    def plan_restart(self, now: float) -> bool:
        """Set the time of the next restart; False if the process has died too often."""
        recent = [moment for moment in self.restarts if now - moment < WITHIN]
        self.restarts = [*recent, now]
        self.restart_at = now + min(FIRST_PAUSE * 2 ** len(recent), LONGEST_PAUSE)
        return len(recent) < RESTARTS


class Supervisor:
    def __init__(
        self,
        tiers: Sequence[Sequence[Service]],
        signals: StopSignals,
        say: Callable[[str], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.tiers = [[Supervised(service) for service in tier] for tier in tiers]
        self.signals = signals
        self.say = say
        self.on_change = on_change

    @property
    def processes(self) -> list[Process]:
        return [supervised.process for tier in self.tiers for supervised in tier]

    def start(self) -> None:
        for tier in self.tiers:
            for supervised in tier:
                supervised.start()
            while waiting := [supervised for supervised in tier if not self._is_ready(supervised)]:
                self._wait_for(waiting)
        self.on_change()

    def _is_ready(self, supervised: Supervised) -> bool:
        """Whether the service has become ready since its start; says so at the first time."""
        if supervised.starting_since is None:
            return True
        if not supervised.service.is_ready():
            return False
        self.say(f"{supervised.name} is ready after {time.monotonic() - supervised.starting_since:.1f} s")
        supervised.starting_since = None
        return True

    def _wait_for(self, waiting: Sequence[Supervised]) -> None:
        if self.signals.received:
            raise Stopped("stopped on request while starting", code=codes.STOP_REQUESTED)
        for supervised in waiting:
            service, since = supervised.service, supervised.starting_since
            if not supervised.process.running:
                raise supervised.process.crash_error()
            if since and time.monotonic() - since > service.ready_seconds:
                raise ServiceUnreachable(
                    f"{supervised.name} is not ready after {service.ready_seconds:.0f} s; the end of "
                    f"{service.command.log}:\n{supervised.process.log_tail()}"
                )
        time.sleep(TICK)

    def poll(self) -> None:
        """Restart dead processes. Raises Stopped after a signal, `process-died` after too many deaths."""
        if self.signals.received:
            raise Stopped("stopped on request", code=codes.STOP_REQUESTED)
        now = time.monotonic()
        for tier in self.tiers:
            for supervised in tier:
                self._poll(supervised, now)

    def _poll(self, supervised: Supervised, now: float) -> None:
        self._limit_log(supervised.process)
        if supervised.process.running:
            if self._is_ready(supervised) and supervised.is_silent(now):
                silent = now - supervised.answered
                self.say(f"{supervised.name} has not answered for {silent:.0f} s: killed, to be restarted")
                supervised.process.kill()
            return
        if supervised.restart_at is None:
            if not supervised.plan_restart(now):
                raise supervised.process.crash_error()
            self.say(f"{supervised.process.crash_error()}\n{supervised.name} will be restarted.")
        elif now >= supervised.restart_at:
            supervised.restart_at = None
            supervised.start()
            self.on_change()

    def _limit_log(self, process: Process) -> None:
        try:
            process.limit_log()
        except OSError as error:
            self.say(f"{process.command.log} is too large, and was emptied: {error}")

    def poll_for(self, seconds: float) -> None:
        """Sleep, and poll the processes meanwhile."""
        deadline = time.monotonic() + seconds
        self.poll()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, TICK))
            self.poll()

    def stop(self) -> None:
        """Stop the tiers in reverse order; the services that a tier needs still run while it stops."""
        signals_before = self.signals.count
        for tier in reversed(self.tiers):
            running = [supervised.process for supervised in tier if supervised.process.running]
            self._stop_tier(running, signals_before)

    def _stop_tier(self, processes: list[Process], signals_before: int) -> None:
        began = time.monotonic()
        for process in processes:
            process.terminate()
        while any(process.running for process in processes):
            waited = time.monotonic() - began
            for process in processes:
                immediately = self.signals.count > signals_before
                if process.running and (immediately or waited > process.command.stop_seconds):
                    self.say(f"{process.name} still runs after {waited:.0f} s: killed")
                    process.kill()
            time.sleep(TICK / 2)
        for process in processes:
            if process.returncode not in process.command.clean:
                self.say(f"{process.name} ended with code {process.returncode}")
