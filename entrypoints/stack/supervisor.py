"""Starts processes tier by tier, restarts those that die or do not answer, stops in reverse order.

The owner of the stack calls `poll` several times a second from the main thread; the supervisor has no thread
of its own, so every process is started by the thread to which the kernel ties its life.

Ctrl-C, SIGTERM and a closed terminal request an orderly stop; a second signal requests an immediate one. The
handler only counts signals, and the main loop reads the count: an exception raised in a handler could
interrupt an orderly stop at any line.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from entrypoints.stack.child import Command, Process
from operations.run import Stopped
from pipeline import codes
from pipeline.errors import ServiceUnreachable
from pipeline.file_system import FULL

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
    """Count the signals within the block; main thread only."""
    signals = StopSignals()
    before = {number: signal.signal(number, signals._receive) for number in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


TICK = 0.1
"""Seconds between two checks of a process."""


def _say(say: Callable[[str], None], line: str) -> None:
    """The output may be on the disk that is full, which ends no stack."""
    try:
        say(line)
    except OSError as error:
        if error.errno not in FULL:
            raise


class Supervisor:
    def __init__(
        self,
        tiers: Sequence[Sequence[Command]],
        signals: StopSignals,
        say: Callable[[str], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.tiers = [[Process(command) for command in tier] for tier in tiers]
        self.signals = signals
        self.say = partial(_say, say)
        self.on_change = on_change

    @property
    def processes(self) -> list[Process]:
        return [process for tier in self.tiers for process in tier]

    def start(self, between: Callable[[], None] = lambda: None) -> None:
        """Start the tiers; `between` is called once a tier is ready, and may refuse the next one."""
        for number, tier in enumerate(self.tiers):
            if number:
                between()
            for process in tier:
                process.start()
            while waiting := [process for process in tier if not self._is_ready(process)]:
                self._wait_for(waiting)
        self.on_change()

    def _is_ready(self, process: Process) -> bool:
        """Whether the process has become ready since it started; reports it the first time."""
        if process.starting_since is None:
            return True
        if not process.command.is_ready():
            return False
        self.say(f"{process.name} is ready after {time.monotonic() - process.starting_since:.1f} s")
        process.starting_since = None
        return True

    def _wait_for(self, waiting: Sequence[Process]) -> None:
        if self.signals.received:
            raise Stopped("stopped on request while starting", code=codes.STOP_REQUESTED)
        for process in waiting:
            command, since = process.command, process.starting_since
            if not process.running:
                raise process.crash_error()
            if since and time.monotonic() - since > command.ready_seconds:
                raise ServiceUnreachable(
                    f"{process.name} is not ready after {command.ready_seconds:.0f} s; the end of "
                    f"{command.log}:\n{process.log_tail()}"
                )
        time.sleep(TICK)

    def poll(self) -> None:
        """Restart dead processes. Raises Stopped after a signal, `process-died` after too many deaths."""
        if self.signals.received:
            raise Stopped("stopped on request", code=codes.STOP_REQUESTED)
        now = time.monotonic()
        for process in self.processes:
            self._poll(process, now)

    def _poll(self, process: Process, now: float) -> None:
        self._limit_log(process)
        if process.running:
            if self._is_ready(process) and process.is_silent(now):
                silent = now - process.answered
                self.say(f"{process.name} has not answered for {silent:.0f} s: killed, to be restarted")
                process.kill()
            return
        if process.restart_at is None:
            if not process.plan_restart(now):
                raise process.crash_error()
            self.say(f"{process.crash_error()}\n{process.name} will be restarted.")
        elif now >= process.restart_at:
            process.restart_at = None
            self._restart(process)

    def _restart(self, process: Process) -> None:
        try:
            process.start()
            self.on_change()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.say(f"after the end of {process.name}: {error}")

    def _limit_log(self, process: Process) -> None:
        try:
            process.limit_log()
        except OSError as error:
            self.say(f"{process.command.log} is too large, and was emptied: {error}")

    def poll_for(self, seconds: float) -> None:
        """Sleep, polling the processes in between."""
        deadline = time.monotonic() + seconds
        self.poll()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, TICK))
            self.poll()

    def stop(self) -> None:
        """Stop the tiers in reverse order: what a tier needs still runs while the tier stops."""
        signals_before = self.signals.count
        for tier in reversed(self.tiers):
            running = [process for process in tier if process.running]
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
