"""One history: deposits, faults, and the judgement of what remains."""

import gc
import logging
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import structlog

import operations.site
from pipeline.settings import Settings
from tools.simulation import invariants, mutations, people
from tools.simulation.client import Network, SimulatedClient
from tools.simulation.disk import Disk
from tools.simulation.ensemble import Change
from tools.simulation.facts import Facts
from tools.simulation.judgement import Ended
from tools.simulation.outside import SERVICE_FAULTS, Outside
from tools.simulation.patches import patched
from tools.simulation.plan import LENGTH, NEAR, WORKING, plan_of
from tools.simulation.script import Item, Script
from tools.simulation.site import RESTART, Site, drop_engines, replaced
from tools.simulation.stand_ins import Broker, Sources
from tools.simulation.world import Process, World
from zkstate.care.audit import audit
from zkstate.connection.session import Session, connect
from zkstate.errors import Unreachable

FAULTS = 20
WORKERS = 3

QUIET = 1800.0
"""Virtual seconds after the last fault in which everything has to end."""

FAST = Path("/dev/shm")  # noqa: S108
"""Memory, where the files of a history are."""

FOLDER = "arkline-simulated-"
"""The beginning of a folder's name; the number of its process follows."""


@dataclass
class Outcome:
    """One history; `problems` is empty if nothing was lost, doubled or left over."""

    seed: int
    towards: tuple[str, ...] = ()
    trace: str = ""
    """The digest of all requests, effects and faults, in their order."""
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual seconds until everything had ended."""
    pairs: list[str] = field(default_factory=list)
    """`fault at place`, of the faults."""
    rows: list[str] = field(default_factory=list)
    """The rows of the table of states that jobs went through."""
    story: list[str] = field(default_factory=list)


def place_of(kind: str, detail: str) -> str:
    """The kind of a place, without what differs from job to job."""
    words = detail.split()
    return " ".join((kind, *words[: 2 if words[0] in _TWO_WORDS else 1]))


_TWO_WORDS = frozenset(("before", "after", "send", "takes"))


def remove_leftovers() -> None:
    """Remove the folders of processes that were killed."""
    for left in FAST.glob(f"{FOLDER}*"):
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def folder() -> Iterator[Path]:
    """The folder of a history. Garbage is not collected meanwhile: it is 10 MB, and searches take long.

    A search passes over what was there before the history.
    """
    gc.disable()
    gc.freeze()
    place = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=FAST))
    try:
        home = place / "site"  # the same name in every run: it is in the trace
        home.mkdir()
        yield home
    finally:
        shutil.rmtree(place, ignore_errors=True)
        gc.enable()
        gc.collect()


class History:
    """One run of a script: the site, its people, and the faults of its processes."""

    def __init__(self, script: Script, place: Path) -> None:
        self.script = script
        self.world = World(script.seed, script.schedule, str(place))
        self.chance = self.world.chance
        """That of what the present fault does."""
        self._faults_drawn = script.chance("faults")
        self.place, self.disk = place, Disk(self.world, place)
        self.outcome = Outcome(script.seed, script.towards)
        self.plan = plan_of(script.seed, script.towards, tuple(FAULTS_OF_A_HISTORY), FAULTS)
        self.facts = Facts()
        self._goals = defaultdict[str, list[str]](list)
        """Place -> the faults that this history seeks there."""
        for goal in script.towards:
            self._goals[goal.partition(" at ")[2]].append(goal.partition(" at ")[0])
        self._faults_of = defaultdict[str, list[float]](list)
        """Process -> when it had a fault; empty: all processes had it."""
        self.finished = False
        self.rules = invariants.Rules(self.facts)
        self._left = FAULTS
        self._passed = Counter[str]()
        """Name of a process -> how many places it has passed."""

    def prepare(self) -> None:
        (self.place / "profiles").mkdir()
        for name in people.COLLECTIONS:
            (self.place / "profiles" / f"{name}.yaml").write_text(people.profile(name, self.plan))
        world, script, plan = self.world, self.script, self.plan
        broker, sources = Broker(world, script, plan), Sources(world, script, plan)
        outside, network = Outside(world, self._service_fault), Network(world, plan.servers)
        network.on_change = self._check
        settings = Settings(
            zk_hosts="127.0.0.1:1",
            home=self.place,
            profiles=self.place / "profiles",
            backoff=5,
            max_tries=plan.tries,
            allow_networks="0.0.0.0/0",
            ezid_url="https://ezid.example" if plan.ezid else "",
            smtp_host="mail.example" if plan.mail else "",
            working_capacity=WORKING if plan.small else 0,
        )
        self.site = Site(world, settings, network, broker, sources, outside, [])
        self.depositor = people.Depositor(world, sources, script, plan, self.facts)
        self.operator = people.Operator(world, script, plan, self.facts, self.depositor)
        self.disk.settle()

    def start(self) -> None:
        for number in range(WORKERS):
            self.site.start_worker(f"worker-{number}")
        self.site.start_beat()
        self._start_depositor()
        self._person("operator", lambda site: self.operator.disturb(site, self.world_end))
        self._person("steward", self._finish)
        self.world.after(2.0, self._expire)
        self.world.on_place, self.world.on_effect = self._at_place, self._check_effect

    def _start_depositor(self) -> None:
        """The depositor's requests are handled by a process that may die, and is started again."""
        process = self._person("depositor", lambda site: self.depositor.deposit(site, self.world_end))
        process.at_end.append(lambda: self.world.after(RESTART, self._start_depositor))

    def _person(self, name: str, acts: Callable[[operations.site.Site], object]) -> Process:
        def act() -> None:
            with self._connected() as session:
                acts(operations.site.Site(self.site.settings, session))

        process = self.world.process(name)
        self.world.spawn(process, act)
        return process

    def _connected(self) -> Session:
        while True:
            try:
                return connect(self.site.settings, 600)
            except Unreachable:
                self.world.park(3.0)

    def _finish(self, site: operations.site.Site) -> None:
        self.world.park(self.world_end - self.world.now)
        self.operator.finish(site)
        self.outcome.problems += (f"audit: {finding}" for finding in audit(site.session))
        self.finished = True

    def _check(self, session: int, changes: tuple[Change, ...]) -> None:
        ensemble, now = self.site.network.ensemble, self.world.now
        problems = list(self.rules.after_change(ensemble, session, changes, now))
        self.facts.note(changes)
        self._note(problems)

    def _check_effect(self, process: Process, name: str, paths: tuple[Any, ...]) -> None:
        sessions = {one for one, of in self.site.network.processes.items() if of is process}
        self._note(self.rules.before_effect(process, sessions, name, paths, self.world.now))

    def _note(self, problems: Iterable[str]) -> None:
        for problem in problems:
            ended = self.operator.ended.keys() & self.facts.batches.keys() & set(problem.split())
            if problem.startswith("failed: ") and (self.plan.fails or ended):
                continue  # a batch whose jobs a person has cancelled ends by its worker's reports
            self.world.note("record", "broken", problem)
            self.outcome.problems.append(f"{problem} (at {self.world.now:.3f})")

    def _expire(self) -> None:
        network = self.site.network
        network.expire()
        for server in range(1, len(network.ensemble.servers)):
            if self.world.chance.random() < 0.5:
                network.catch_up(server)
        self.world.after(0.5, self._expire)

    # --- the faults

    def _at_place(self, process: Process, kind: str, detail: str) -> None:
        number = self._passed[process.name] = self._passed[process.name] + 1
        fault = self._fault_at(process, number, kind, detail)
        if fault is None or not self.script.happens(Item(fault, number, process.name)):
            return
        self.chance = self.script.chance(process.name, number)
        self._enter(f"{fault} at {place_of(kind, detail)}", f"{fault} {process.name} at {kind} {detail}")
        whose = "" if fault in FAULTS_OF_ALL else f"{process.name} {process.pid}"
        self._faults_of[whose].append(self.world.now)
        self.world.note(process.name, "fault", fault)
        FAULTS_OF_A_HISTORY[fault](self, process)

    def _enter(self, pair: str, fault: str) -> None:
        self.outcome.pairs.append(pair)
        self.outcome.faults.append(f"{self.world.now:.3f} {fault}")

    def _fault_at(self, process: Process, number: int, kind: str, detail: str) -> str | None:
        if self.script.items is not None:
            return self.script.fault_at(process.name, number)
        if self.world.now > self.world_end or not process.name.startswith(("worker", "depositor")):
            return None
        goals = self._goals.get(place_of(kind, detail), []) if self._goals else []
        for fault in goals:
            if fault in FAULTS_OF_A_HISTORY and self._faults_drawn.random() < NEAR:
                goals.remove(fault)
                return fault
        if not self._left or self._faults_drawn.random() >= self.plan.fault_rate:
            return None
        self._left -= 1
        return self._faults_drawn.choice(self.plan.faults)

    def _service_fault(self, place: str) -> str:
        """The fault that the next request to a service has; empty for none."""
        goals = self._goals.get(place, [])
        for fault in SERVICE_FAULTS if self.world.now < self.world_end else ():
            fraction = 1.0 if fault in goals else self.plan.refused / len(SERVICE_FAULTS)
            if self.script.strikes(f"{fault} at {place}", fraction):
                self._enter(f"{fault} at {place}", f"{fault} at {place}")
                self.world.note("outside", "fault", f"{fault} at {place}")
                if fault in goals:
                    goals.remove(fault)
                return fault
        return ""

    def clients_of(self, process: Process) -> list[SimulatedClient]:
        return [client for client in self.site.network.clients.values() if client.process is process]

    def lose_content(self, process: Process) -> None:
        """Working storage loses what it has of the jobs that the process works on."""
        sessions = {client.session for client in self.clients_of(process)}
        for place, owner in self.rules.owners.items():
            if owner in sessions:
                for folder in (self.place / "working").glob(f"*{place[len('/jobs') :]}"):
                    self.disk.remove(str(folder))

    def kill_with_content(self, process: Process) -> None:
        self.lose_content(process)
        self.world.kill(process, "fault")

    def take_lock_away(self, _: Process) -> None:
        """A lock of scheduled work is missing for a while, as if an older record answered meanwhile."""
        network, ensemble = self.site.network, self.site.network.ensemble
        network.catch_up()
        path = next((one for one in ensemble.leader.nodes if one.startswith("/locks/single-flight/")), None)
        if path is None:
            return
        self.world.note("zookeeper", "lost", path)
        nodes = [tree.take_out(path) for tree in ensemble.servers]

        def put_back() -> None:
            network.catch_up()  # all servers get the same node
            if nodes[0].owner in ensemble.sessions and path not in ensemble.leader.nodes:
                for tree, node in zip(ensemble.servers, nodes, strict=True):
                    tree.put_back(path, node)

        self.world.after(0.5 + self.chance.random() * 3, put_back)

    def break_off(self, process: Process) -> None:
        for client in self.clients_of(process):
            client.break_off("fault")

    def fall_silent(self, process: Process) -> None:
        for client in self.clients_of(process):
            client.fall_silent(self.chance.choice(("requests", "answers")))

    def lose_majority(self, _: Process) -> None:
        self.site.network.lose_majority()
        self.world.after(self.chance.random() * 25, self.site.network.regain_majority)

    def expire(self, process: Process) -> None:
        for session in [client.session for client in self.clients_of(process)]:
            self.site.network.end(session)

    def freeze_long(self, process: Process) -> None:
        """The session of the process ends meanwhile, and the process continues without noticing."""
        self.break_off(process)
        self.world.freeze(process, 15 + self.chance.random() * 20)

    def stop_redis(self, _: Process) -> None:
        self.site.broker.answers = False
        self.world.after(self.chance.random() * 20, partial(setattr, self.site.broker, "answers", True))

    def cut_power(self, process: Process) -> None:
        """All workers are on one host."""
        for other in [one for one in self.site.workers if one is not process]:
            self.world.kill(other, "power cut")
        self.disk.cut_power()
        self.world.kill(process, "power cut")

    # --- the run

    def run(self, *, first: bool = False) -> Outcome:
        """Begin and end the history; `first`: end it at the first problem."""
        world, outcome = self.world, self.outcome
        began = world.now
        self.world_end = began + LENGTH
        self.start()
        try:
            if not world.run(
                lambda: self.finished or (first and bool(outcome.problems)), self.world_end + QUIET
            ):
                outcome.problems.append(f"liveness: not everything ended {QUIET:.0f} s after the last fault")
        except Exception as error:  # noqa: BLE001 - raised in a task, whose process would have ended by it
            outcome.problems.append(f"process: ended by {error!r}")
        tree = self.site.network.ensemble.leader
        if not (first and outcome.problems):
            ended = Ended(tree, self.place, self.operator, self.site.outside, self._faults_of)
            outcome.problems += ended.judge()
        outcome.seconds = world.now - began
        outcome.trace = world.trace.hexdigest()
        outcome.rows = sorted(self.facts.rows)
        outcome.story = world.story or []
        return outcome


FAULTS_OF_A_HISTORY: dict[str, Callable[[History, Process], object]] = {
    "process killed": lambda history, process: history.world.kill(process, "fault"),
    "process killed with the content of its job": History.kill_with_content,
    "content lost": History.lose_content,
    "lock away": History.take_lock_away,
    "connection broken": History.break_off,
    "connection silent": History.fall_silent,
    "servers without a majority": History.lose_majority,
    "session expired": History.expire,
    "process frozen": lambda history, process: history.world.freeze(process, history.chance.random() * 3),
    "process frozen for longer than its session": History.freeze_long,
    "broker wiped": lambda history, _: history.site.broker.wipe(),
    "broker away": History.stop_redis,
    "power cut": History.cut_power,
    "disk full": lambda history, _: history.disk.fill(history.chance.random() * 20),
}

FAULTS_OF_ALL = ("servers without a majority", "power cut", "lock away")
"""Those that do not meet one process alone."""


def replay(script: Script, *, story: bool = False, first: bool = False) -> Outcome:
    """Run a history; `first`: only until the first problem."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with folder() as place:
        history = History(script, place)
        if story:
            history.world.story = []
        with patched(history.world, history.disk):
            history.prepare()
            with replaced(history.site), mutations.mutated(script.mutation):
                try:
                    outcome = history.run(first=first)
                finally:
                    history.world.close()
        drop_engines(str(place))
        return outcome
