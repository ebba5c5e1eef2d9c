"""One run: deposits arrive, faults strike on schedule, everything is healed, and quiet is waited for."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.stack.signals import StopSignals
from entrypoints.stack.supervisor import StopRequested
from tools.chaos import faults, server_faults
from tools.chaos.background import SecondBeat, Submitter
from tools.chaos.cluster import Arena, arena
from tools.chaos.deposits import Collection, Depositor
from tools.chaos.quiet import Quiet
from tools.chaos.schedule import NEEDS_SMALL_DISKS, Fault, Kind, draw
from tools.chaos.witness import Recovery

TICK = 0.05
"""Seconds between two looks at what is due."""

PATIENCE = 5.0
"""Seconds that a fault waits for something that it can hit in the state that it is for."""

GIVEN_UP = 60.0
"""Seconds after which a fault that found nothing at all is left out."""

BEGIN = faults.BEGIN | server_faults.BEGIN


@dataclass(frozen=True)
class Order:
    """What was asked for."""

    seed: int
    jobs: int
    faults: int
    seconds: float
    """How long faults strike and deposits arrive."""
    kinds: frozenset[Kind] = frozenset(Kind)
    quiet_seconds: float = 420.0
    """How long the repository may take to end everything once nothing disturbs it any more: a job that lost
    its worker seven times is left alone for 384 s."""


@dataclass(frozen=True)
class Happened:
    """One line of the run's own timeline."""

    at: float
    """Seconds since the schedule began."""
    clock: float
    """The same moment on the wall clock."""
    text: str


@dataclass(frozen=True)
class Stroke:
    """A fault that was done; times are those of time.monotonic()."""

    fault: Fault
    began: float

    @property
    def ended(self) -> float:
        return self.began + self.fault.seconds


@dataclass
class Course:
    """How the run went, for the checker and for the story."""

    order: Order
    folder: Path
    collection: Collection
    bids: dict[str, str] = field(default_factory=dict)
    events: list[Happened] = field(default_factory=list)
    struck: list[Stroke] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    quiet_after: float | None = None
    """Seconds from the healing until everything had ended; None if it did not."""
    small_disks: bool = True


def run(
    order: Order,
    folder: Path,
    signals: StopSignals,
    say: Callable[[str], None],
    examine: Callable[[Arena, Course], None],
) -> Course:
    """Do it all; `examine` sees the arena when nothing runs any more but the servers."""
    with ExitStack() as held:
        stage = held.enter_context(arena(folder))
        _log_to(folder / "log" / "arena.log")
        collection = Depositor(order.seed, stage.outside.source).make(order.jobs, order.seconds * 0.85)
        course = Course(order, folder, collection, small_disks=stage.small_disks)
        play = _Play(order, stage, course, signals, say)
        submitter = Submitter(stage.settings, collection.deposits, stage.outside.source.url)
        beat = SecondBeat(stage.settings)
        scene = faults.Scene(stage, beat, collection.second_bodies)
        for each in (submitter, beat):
            each.start()
            held.callback(each.stop)
        play.strike(scene)
        stage.heal()
        play.note("healed")
        if submitter.broken:
            play.note("not quiet: submitting broke")
        else:
            play.wait_until_quiet(Quiet(stage.settings, submitter, beat))
        course.bids = dict(submitter.bids)
        course.recoveries = stage.witness.recoveries()
        stage.stop()
        course.seconds = time.monotonic() - play.began
        examine(stage, course)
        return course


def _log_to(file: Path) -> None:
    """What this process's own second beat says goes beside the workers' logs."""
    from tasks import logs

    logs.configure()
    (writer,) = logging.getLogger().handlers
    assert isinstance(writer, logging.StreamHandler)
    writer.setStream(file.open("w"))


class _Play:
    def __init__(
        self, order: Order, stage: Arena, course: Course, signals: StopSignals, say: Callable[[str], None]
    ) -> None:
        self.order = order
        self.stage = stage
        self.course = course
        self.signals = signals
        self.say = say
        self.began = time.monotonic()
        self._undo: list[tuple[float, str, Callable[[], None]]] = []

    def note(self, text: str) -> None:
        at = time.monotonic() - self.began
        self.course.events.append(Happened(at, time.time(), text))
        self.say(f"{at:6.1f}  {text}")

    def strike(self, scene: faults.Scene) -> None:
        """The schedule from its first moment to its last, and until the last fault is over."""
        kinds = self.order.kinds - (frozenset() if self.stage.small_disks else NEEDS_SMALL_DISKS)
        waiting = list(draw(self.order.seed, self.order.faults, self.order.seconds, kinds))
        while waiting or self._undo or self._now() < self.order.seconds:
            self._tick()
            for fault in [each for each in waiting if each.at <= self._now()]:
                if self._begin(scene, fault):
                    waiting.remove(fault)
            self._end_due()

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _tick(self) -> None:
        if self.signals.received:
            raise StopRequested("stopped on request")
        self.stage.poll()
        time.sleep(TICK)

    def _begin(self, scene: faults.Scene, fault: Fault) -> bool:
        try:
            hit = BEGIN[fault.kind](scene, fault, self._now() > fault.at + PATIENCE)
        except faults.NotNow:
            if self._now() < fault.at + GIVEN_UP:
                return False
            self.note(f"{fault.kind.label}: there was nothing to hit")
            return True
        self.course.struck.append(Stroke(fault, time.monotonic()))
        lasts = f" for {fault.seconds} s" if hit.undo else ""
        self.note(f"{fault.kind.label}: {hit.what}{lasts}")
        if hit.undo is not None:
            self._undo.append((self._now() + fault.seconds, fault.kind.label, hit.undo))
        return True

    def _end_due(self) -> None:
        for each in [due for due in self._undo if due[0] <= self._now()]:
            self._undo.remove(each)
            each[2]()
            self.note(f"{each[1]}: over")

    def wait_until_quiet(self, quiet: "Quiet") -> None:
        """Until every batch has ended and been reported, what could be resumed was, and all is cleaned up."""
        healed = time.monotonic()
        quiet.start()
        while not quiet.reached.is_set():
            self._tick()
            if time.monotonic() - healed > self.order.quiet_seconds:
                self.note(f"not quiet: {quiet.state}")
                quiet.stop()
                return
        quiet.stop()
        self.course.resumed = quiet.resumed
        self.course.quiet_after = time.monotonic() - healed
        self.note(f"quiet; {len(quiet.resumed)} jobs were resumed")
