"""One run: deposits arrive, faults are injected on schedule, all is healed, then the queue must drain."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.stack.supervisor import StopSignals
from operations.run import Stopped
from pipeline import codes
from tools.chaos import faults, job_faults, operator_acts, outside_faults, server_faults, store_faults
from tools.chaos.acts import Acts
from tools.chaos.background import SecondBeat, Submitter
from tools.chaos.cluster import Cluster, run_cluster
from tools.chaos.deposits import REJECTION, Collection, Depositor
from tools.chaos.hosts import host_faults, network
from tools.chaos.hosts.host_cluster import run_hosts
from tools.chaos.operator import OperatorThread
from tools.chaos.operator_verbs import reviewing
from tools.chaos.quiet import Quiet
from tools.chaos.schedule import (
    NEEDS_CLAMD,
    NEEDS_FAKETIME,
    NEEDS_MOUNTS,
    NOT_WITH_HOSTS,
    OF_HOSTS,
    Fault,
    Kind,
    draw,
)
from tools.chaos.witness import Recovery

TICK = 0.05
"""Seconds between two checks of the schedule."""

FAULT_WAIT = 5.0
"""Seconds that a fault waits for a process in the state that it needs."""

GIVE_UP_AFTER = 120.0
"""Seconds after which a fault without a target is skipped: longer than an outage of the same service."""

REVIEW_INTERVAL = 3.0
"""Seconds between two reviews by the operator."""

BEGIN = (
    faults.BEGIN
    | job_faults.BEGIN
    | server_faults.BEGIN
    | store_faults.BEGIN
    | outside_faults.BEGIN
    | operator_acts.BEGIN
    | host_faults.BEGIN
)


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line."""

    seed: int
    jobs: int
    faults: int
    seconds: float
    """Seconds during which faults are injected and deposits arrive."""
    kinds: frozenset[Kind] = frozenset(Kind)
    hosts: int = 0
    """Number of hosts; 0: all on this machine."""
    quiet_seconds: float = 900.0
    """Seconds for the repository to end every batch after the last fault: a job that lost its worker seven
    times waits 384 s before the next attempt, and one that failed six attempts 320 s."""


@dataclass(frozen=True)
class LogEntry:
    """One line of the run's timeline."""

    at: float
    """Seconds since the schedule began."""
    clock: float
    """The same moment by the wall clock."""
    text: str


@dataclass(frozen=True)
class Injected:
    """An injected fault; times are from time.monotonic()."""

    fault: Fault
    began: float

    @property
    def ended(self) -> float:
        return self.began + self.fault.seconds


@dataclass
class RunLog:
    """The course of the run, for the checker and the report."""

    options: RunOptions
    folder: Path
    collection: Collection
    bids: dict[str, str] = field(default_factory=dict)
    acts: Acts = field(default_factory=Acts)
    vain: Counter[str] = field(default_factory=Counter)
    """Kind of act -> how often no job or batch allowed it."""
    events: list[LogEntry] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    quiet_after: float | None = None
    """Seconds from healing until every batch had ended; None if one did not end."""
    small_disks: bool = True
    clocks: bool = True
    checks: bool = True
    delay_by: str = ""
    """What holds packets back: "netem" or "relay"; empty without hosts."""

    def kinds(self) -> Counter[str]:
        """Kind of fault or act -> how often it was injected or done."""
        return Counter(injected.fault.kind.label for injected in self.injected) - self.vain


def run(
    options: RunOptions,
    folder: Path,
    signals: StopSignals,
    say: Callable[[str], None],
    examine: Callable[[Cluster, RunLog], None],
) -> RunLog:
    """Run to the end; calls `examine` with the cluster once only its servers are running."""
    with ExitStack() as held:
        cluster = held.enter_context(
            run_hosts(folder, options.hosts) if options.hosts else run_cluster(folder)
        )
        log_to(folder / "log" / "arena.log")
        depositor = Depositor(options.seed, cluster.fakes.source)
        collection = depositor.make(options.jobs, options.seconds * 0.85, cluster.collections)
        run_log = RunLog(options, folder, collection)
        run_log.small_disks, run_log.clocks = cluster.small_disks, bool(cluster.clocks)
        run_log.checks = cluster.scanner is not None
        run_log.delay_by = network.delayed_by() if cluster.hosts else ""
        if not run_log.checks:
            say("checks are not run: this machine has no clamd, or no pygfried")
        runner = _Runner(options, cluster, run_log, signals, say)
        rejected = {
            deposited.path
            for deposit in collection.deposits
            for deposited in deposit.objects
            if deposited.planted == REJECTION
        }
        submitter = Submitter(cluster.settings, collection.deposits, cluster.fakes.source.url)
        beat = SecondBeat(cluster.settings)
        operator = OperatorThread(cluster.settings, runner.note)
        runner.review = lambda: operator.ask(reviewing(rejected))
        context = faults.FaultContext(cluster, beat, operator, submitter, collection.second_bodies)
        for thread in (submitter, beat, operator):
            thread.start()
            held.callback(thread.stop)
        runner.inject(context)
        cluster.heal()
        operator.undo_all()
        runner.note("healed")
        if submitter.broken:
            runner.note("not quiet: submitting broke")
        else:
            runner.wait_until_quiet(Quiet(cluster.settings, submitter, operator, beat))
        run_log.acts, run_log.vain = operator.acts, operator.vain
        run_log.bids = dict(submitter.bids)
        run_log.recoveries = cluster.witness.recoveries()
        cluster.stop()
        run_log.seconds = time.monotonic() - runner.began
        examine(cluster, run_log)
        return run_log


def log_to(file: Path) -> None:
    """Write the log of the second beat, in this process, beside the workers' logs."""
    from tasks import logs

    logs.configure()
    (writer,) = logging.getLogger().handlers
    assert isinstance(writer, logging.StreamHandler)
    writer.setStream(file.open("w"))


class _Runner:
    def __init__(
        self,
        options: RunOptions,
        cluster: Cluster,
        run_log: RunLog,
        signals: StopSignals,
        say: Callable[[str], None],
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.run_log = run_log
        self.signals = signals
        self.say = say
        self.began = time.monotonic()
        self.review: Callable[[], None] = lambda: None
        """Have the operator decide about the jobs in review."""
        self._reviewed = self.began
        self._undo: list[tuple[float, str, Callable[[], None]]] = []

    def note(self, text: str) -> None:
        at = time.monotonic() - self.began
        self.run_log.events.append(LogEntry(at, time.time(), text))
        self.say(f"{at:6.1f}  {text}")

    def inject(self, context: faults.FaultContext) -> None:
        """Follow the schedule to its end, until the last fault is undone."""
        kinds = self.options.kinds
        kinds -= frozenset() if self.cluster.small_disks else NEEDS_MOUNTS
        kinds -= frozenset() if self.cluster.clocks else NEEDS_FAKETIME
        kinds -= frozenset() if self.cluster.scanner else NEEDS_CLAMD
        kinds -= NOT_WITH_HOSTS if self.cluster.hosts else OF_HOSTS
        waiting = list(draw(self.options.seed, self.options.faults, self.options.seconds, kinds))
        while waiting or self._undo or self._now() < self.options.seconds:
            self._tick()
            for fault in [fault for fault in waiting if fault.at <= self._now()]:
                if self._begin(context, fault):
                    waiting.remove(fault)
            self._end_due()

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _tick(self) -> None:
        if self.signals.received:
            raise Stopped("stopped on request", code=codes.STOP_REQUESTED)
        self.cluster.poll()
        if time.monotonic() > self._reviewed + REVIEW_INTERVAL:
            self._reviewed = time.monotonic()
            self.review()
        time.sleep(TICK)

    def _begin(self, context: faults.FaultContext, fault: Fault) -> bool:
        try:
            hit = BEGIN[fault.kind](context, fault, self._now() > fault.at + FAULT_WAIT)
        except faults.NotNow:
            if self._now() < fault.at + GIVE_UP_AFTER:
                return False
            self.note(f"{fault.kind.label}: no target")
            return True
        self.run_log.injected.append(Injected(fault, time.monotonic()))
        lasts = f" for {fault.seconds} s" if hit.undo else ""
        self.note(f"{fault.kind.label}: {hit.what}{lasts}")
        if hit.undo is not None:
            self._undo.append((self._now() + fault.seconds, fault.kind.label, hit.undo))
        return True

    def _end_due(self) -> None:
        for effect in [due for due in self._undo if due[0] <= self._now()]:
            self._undo.remove(effect)
            effect[2]()
            self.note(f"{effect[1]}: over")

    def wait_until_quiet(self, quiet: "Quiet") -> None:
        """Wait until every batch has ended and is reported, and its working storage is cleaned up."""
        healed = time.monotonic()
        quiet.start()
        while not quiet.reached.is_set():
            self._tick()
            if time.monotonic() - healed > self.options.quiet_seconds:
                self.note(f"not quiet: {quiet.state}")
                quiet.stop()
                return
        quiet.stop()
        self.run_log.resumed = quiet.resumed
        self.run_log.quiet_after = time.monotonic() - healed
        self.note(f"quiet; {len(quiet.resumed)} jobs were resumed")
