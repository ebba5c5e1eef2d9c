"""Tasks that run one at a time, in virtual time; the seed chooses which one continues, and what is lost.

A task is a greenlet of one simulated process. It runs until it waits, sends a request or has an effect; there
the world continues with another task, or kills the process. A killed process is not resumed: as with SIGKILL,
no handler runs.
"""

import fcntl
import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

BEGINNING = 1_750_000_000.0
"""Virtual seconds since 1970 at the start of a history."""

SWITCH = 0.0002
"""Most virtual seconds that a task takes from one wait to the next."""


class Stuck(Exception):
    """No task can continue, and no timer is left: the simulated processes wait for each other."""


@dataclass(eq=False)
class Process:
    """A simulated process: what dies together."""

    name: str
    pid: int
    runs: bool = True
    frozen_until: float = 0.0
    thread: Any = None
    """Stands for the main thread."""
    at_end: list[Callable[[], None]] = field(default_factory=list)
    """Called when the process dies: its connections break."""
    locked: dict[int, None] = field(default_factory=dict)
    """The descriptors of the files that it has locked."""


class Task:
    """One thread of a process."""

    def __init__(self, process: Process, number: int, work: Callable[[], object], hub: greenlet) -> None:
        self.process, self.number = process, number
        self.greenlet = greenlet(work, hub)  # at its end the world continues, not the task that started it
        self.thread: Any = process.thread
        self.values: dict[object, SimpleNamespace] = {}
        """Those of thread-local objects."""
        self.waits = 0
        """Counts the waits: a timer of an earlier wait wakes nobody."""
        self.timed_out = False

    @property
    def ended(self) -> bool:
        return bool(self.greenlet.dead)


class World:
    """One history's processes, timers and choices."""

    def __init__(self, seed: int, schedule: int = 0, home: str = "\0") -> None:
        """`home`: a folder whose name differs between runs, which the trace does not have."""
        self.seed, self._home = seed, home
        self.chance = random.Random(f"history {seed} {schedule}")
        self.now = BEGINNING
        self.processes: list[Process] = []
        self.trace = hashlib.sha256()
        self.story: list[str] | None = None
        """The lines of the trace, if they are kept."""
        self.on_place: Callable[[Process, str, str], None] = lambda *_: None
        """Called at each place; may kill or freeze the process."""
        self.on_effect: Callable[[Process, str, tuple[Any, ...]], None] = lambda *_: None
        """Called before each effect on files, with the name of the function of `os` and its arguments."""
        self._hub = getcurrent()
        self._tasks: list[Task] = []
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count(1)
        self.current: Task | None = None
        self._over = False

    # --- processes and tasks

    def process(self, name: str) -> Process:
        process = Process(name, 1000 + len(self.processes), thread=SimpleNamespace(name=name))
        self.processes.append(process)
        return process

    def spawn(self, process: Process, work: Callable[[], object]) -> Task:
        task = Task(process, next(self._numbers), work, self._hub)
        self._tasks.append(task)
        self._ready.append(task)
        return task

    def kill(self, process: Process, why: str) -> None:
        """The process ends as by SIGKILL."""
        if not process.runs:
            return
        process.runs = False
        self.note(process.name, "killed", why)
        for end in process.at_end:
            end()
        for descriptor in process.locked:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        if self.current is not None and self.current.process is process:
            self._leave()

    def freeze(self, process: Process, seconds: float) -> None:
        """The process does not run for a while, and knows nothing of it afterwards."""
        self.note(process.name, "frozen", f"{seconds:.1f}")
        process.frozen_until = self.now + seconds

    # --- time

    def at(self, moment: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (moment, next(self._numbers), act))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self.now + seconds, act)

    # --- what a task calls

    def pass_place(self, kind: str, detail: str) -> None:
        """The task is about to have an effect, or has had one: others may go first."""
        task = self.current
        if task is None or getcurrent() is not task.greenlet:
            return  # the preparation of the history
        if self._over:
            raise GreenletExit
        self.note(task.process.name, kind, detail)
        self.on_place(task.process, kind, detail)
        self._ready.append(task)
        self._leave()

    def park(self, timeout: float | None = None) -> bool:
        """Wait until `wake`, or the timeout in seconds; returns whether the task was woken."""
        task = self.current
        if task is None:
            raise Stuck("the preparation of a history waits")
        if self._over:
            raise GreenletExit
        task.waits += 1
        task.timed_out = False
        if timeout is not None:
            waits = task.waits
            self.after(max(timeout, 0.0), lambda: self._time_out(task, waits))
        self._leave()
        return not task.timed_out

    def _time_out(self, task: Task, waits: int) -> None:
        if task.waits == waits and not task.ended:
            self.wake(task)
            task.timed_out = True

    def wake(self, task: Task) -> None:
        task.timed_out = False
        task.waits += 1
        self._ready.append(task)

    def _leave(self) -> None:
        self._hub.switch()
        if self._over:
            raise GreenletExit

    def explain(self, who: str, kind: str, detail: Callable[[], str]) -> None:
        """A line of the story that is not in the trace, because it takes time to make."""
        if self.story is not None:
            self.story.append(f"{self.now:.6f} {who} {kind} {detail()}")

    def note(self, who: str, kind: str, detail: str) -> None:
        line = f"{self.now:.6f} {who} {kind} {detail}".replace(self._home, "")
        self.trace.update(line.encode())
        if self.story is not None:
            self.story.append(line)

    # --- the run

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Continue until the condition holds; False if it does not before the virtual time `limit`."""
        while not until():
            if self.now > limit:
                return False
            if not self._step():
                raise Stuck("no task can continue")
        return True

    def _step(self) -> bool:
        if self._timers and (not self._ready or self._timers[0][0] <= self.now):
            moment, _, act = heapq.heappop(self._timers)
            self.now = max(self.now, moment)
            act()
            return True
        if not self._ready:
            return False
        index = self.chance.randrange(len(self._ready)) if len(self._ready) > 1 else 0
        task = self._ready.pop(index)
        process = task.process
        if not process.runs or task.ended:
            return True
        if process.frozen_until > self.now:
            self.at(process.frozen_until, lambda: self._ready.append(task))
            return True
        self.now += self.chance.random() * SWITCH
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None
        return True

    def close(self) -> None:
        """End all tasks: what they do from now on reaches nothing."""
        self._over = True
        for task in self._tasks:
            if task.greenlet:
                self.current = task
                task.greenlet.throw(GreenletExit)
        self.current = None
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
