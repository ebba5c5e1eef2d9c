"""One history: deposits, faults, and the judgement of what remains."""

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

import operations.site
from operations.deposits import submission
from pipeline.principal import Interface, Principal, Role
from pipeline.records import SubmissionType
from pipeline.states import BatchState
from tools.simulation.client import Network, SimulatedClient
from tools.simulation.patches import patched
from tools.simulation.site import Site, a_place, drop_engines, replaced
from tools.simulation.stand_ins import Broker, Sources
from tools.simulation.world import Process, World
from zkstate.connection.session import connect
from zkstate.record import batches

JOBS = 20
FAULTS = 20
LENGTH = 60.0
"""Virtual seconds in which deposits and faults begin."""

QUIET = 1800.0
"""Virtual seconds after the last fault in which everything has to end."""

DEPOSITOR = Principal(name="depositor", role=Role.DEPOSITOR, interface=Interface.API)
COLLECTIONS = ("maps", "letters", "films")

FAST = Path("/dev/shm")  # noqa: S108
"""Memory, where the files of a history are."""


@dataclass
class Outcome:
    seed: int
    trace: str
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Virtual seconds until everything had ended."""
    jobs: int = 0
    met: dict[str, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)


@contextmanager
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="arkline-history-", dir=FAST if FAST.is_dir() else None))
    try:
        home = place / "site"  # the same name in every run: it is in the trace
        home.mkdir()
        yield home
    finally:
        shutil.rmtree(place, ignore_errors=True)


class History:
    """A seed's site, deposits and faults."""

    def __init__(self, seed: int, place: Path, faults: int, workers: int = 3) -> None:
        self.world = World(seed)
        self.chance = self.world.chance
        self.faults, self.workers = faults, workers
        self.place = place
        self.outcome = Outcome(seed, "")
        self.bids: list[str] = []
        self.expected = 0
        self.ended = False
        self._left = faults

    def prepare(self) -> None:
        profiles = self.place / "profiles"
        profiles.mkdir()
        for name in COLLECTIONS:
            (profiles / f"{name}.yaml").write_text(
                f"name: {name}\nowner: ark:/99999/fk4{name}\ncollections: [ark:/99999/fk4{name}list]\n"
                "naan: '99999'\nshoulder: fk4\nnotification: [archivist@example.org]\n"
            )
        world = self.world
        self.broker, self.sources = Broker(world), Sources(world)
        network = Network(world, world.chance.choice((1, 3)))
        self.site = Site(world, a_place(self.place), network, self.broker, self.sources, [])

    def start(self) -> None:
        for number in range(self.workers):
            self.site.start_worker(f"worker-{number}")
        self.site.start_beat()
        process = self.world.process("depositor")
        self.depositor = process
        self.world.spawn(process, "main", self._deposit)
        self.world.after(2.0, self._expire)
        self.world.on_place = self._at_place

    def _expire(self) -> None:
        network = self.site.network
        network.expire()
        for server in range(1, len(network.ensemble.servers)):
            if self.chance.random() < 0.5:
                network.catch_up(server)
        self.world.after(0.5, self._expire)

    # --- the depositor

    def _deposit(self) -> None:
        world = self.world
        world.park(1.0)
        left = JOBS
        with connect(self.site.settings, 30) as session:
            open_site = operations.site.Site(self.site.settings, session)
            number = 0
            while left:
                world.park(self.chance.random() * LENGTH / 6)
                size = min(left, self.chance.randint(1, 10))
                submitted = self._submit(open_site, number, size)
                self.bids.append(submitted)
                self.expected += size
                left -= size
                number += 1
        self.ended = True

    def _submit(self, site: operations.site.Site, number: int, size: int) -> str:
        collection = self.chance.choice(COLLECTIONS)
        names = [f"d{number}-o{one}.txt" for one in range(size)]
        urls = [self.sources.put(name, name.encode() * self.chance.randint(1, 2000)) for name in names]
        if size == 1:
            given = {"payload_url": urls[0], "type": SubmissionType.FILE}
        else:
            rows = [
                f"{url} | | | | | {name} | | local-{number}-{one} | A. Maker | {name} | 2020"
                for one, (url, name) in enumerate(zip(urls, names, strict=True))
            ]
            text = "\n".join(
                [
                    "#%checkm_0.7",
                    "#%profile | http://uc3.cdlib.org/registry/ingest/manifest/mrt-single-file-batch-manifest",
                    *rows,
                    "#%eof",
                    "",
                ]
            )
            given = {
                "payload_url": self.sources.put(f"d{number}.checkm", text.encode()),
                "type": SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
            }
        given_submission = submission.checked(
            {**given, "profile_name": collection, "idempotency_key": f"deposit {number}"}
        )
        while True:
            try:
                return submission.submit(site, DEPOSITOR, given_submission).bid
            except Exception as error:  # noqa: BLE001 - the depositor tries again, as people do
                self.world.note("depositor", "tries again", repr(error))
                self.world.park(3.0)

    # --- the faults

    def _at_place(self, process: Process, kind: str, detail: str) -> None:
        if not self._left or not process.name.startswith("worker") or self.world.now > self.world_end:
            return
        if self.chance.random() >= self.rate:
            return
        self._left -= 1
        fault = self.chance.choice(tuple(FAULTS_OF_A_HISTORY))
        self.outcome.faults.append(f"{self.world.now:.3f} {fault} {process.name} at {kind} {detail}")
        self.world.note(process.name, "fault", fault)
        FAULTS_OF_A_HISTORY[fault](self, process)

    def clients_of(self, process: Process) -> list[SimulatedClient]:
        return [client for client in self.site.network.clients.values() if client.process is process]

    def kill(self, process: Process) -> None:
        self.world.kill(process, "fault")

    def break_off(self, process: Process) -> None:
        for client in self.clients_of(process):
            client.break_off("fault")

    def expire(self, process: Process) -> None:
        for session in [client.session for client in self.clients_of(process)]:
            self.site.network.end(session)

    def freeze(self, process: Process) -> None:
        self.world.freeze(process, self.chance.random() * 3)

    def freeze_long(self, process: Process) -> None:
        """The session of the process ends meanwhile, and the process continues without noticing."""
        self.break_off(process)
        self.world.freeze(process, 15 + self.chance.random() * 20)

    def wipe(self, _: Process) -> None:
        self.broker.wipe()

    def stop_redis(self, _: Process) -> None:
        self.broker.answers = False
        self.world.after(self.chance.random() * 20, self._start_redis)

    def _start_redis(self) -> None:
        self.broker.answers = True

    # --- the run

    def run(self) -> Outcome:
        world, outcome = self.world, self.outcome
        self.world_end = world.now + LENGTH
        self.rate = self.faults / 1500 * (0.5 + self.chance.random())
        self.broker.lost_fraction = self.chance.choice((0.0, 0.02, 0.1))
        self.broker.repeated_fraction = self.chance.choice((0.0, 0.05, 0.2))
        self.sources.broken_fraction = self.chance.choice((0.0, 0.02, 0.1))
        checker = world.process("checker")
        done: list[bool] = []

        def watch() -> None:
            with connect(self.site.settings, 600) as session:
                while True:
                    world.park(5.0)
                    if self.ended and self._all_ended(session):
                        break
            done.append(True)

        world.spawn(checker, "main", watch)
        began = world.now
        ended = world.run(lambda: bool(done), self.world_end + QUIET)
        outcome.seconds = world.now - began
        if not ended:
            outcome.problems.append(f"not everything ended {QUIET:.0f} s after the last fault")
        outcome.problems += self._judge()
        outcome.trace = world.trace.hexdigest()
        outcome.met = dict(world.met)
        outcome.story = world.story or []
        outcome.jobs = self.expected
        return outcome

    def _all_ended(self, session: object) -> bool:
        for bid in self.bids:
            batch = batches.load(session, bid)  # type: ignore[arg-type]
            if batch.status.status not in (BatchState.COMPLETED, BatchState.FAILED):
                return False
        return True

    def _judge(self) -> list[str]:
        """Read the leader's tree, without the code that moves jobs."""
        tree = self.site.network.ensemble.leader
        for path, node in tree.nodes.items():
            if (
                path.startswith(("/outages/", "/locks/", "/batches/")) and "status" in path
            ) or path.startswith("/outages/"):
                self.world.note(path, "is", repr(node.data))
        problems: list[str] = []
        states: dict[str, str] = {}
        for path, node in tree.nodes.items():
            parts = path.split("/")
            if len(parts) >= 4 and parts[-3] == "jobs" and parts[-1] == "status":
                status = json.loads(node.data)
                states[parts[-2]] = status["status"]
                if status["status"] != "completed":
                    self.world.note(parts[-2], "ended as", node.data.decode())
        completed = [jid for jid, state in states.items() if state == "completed"]
        if len(states) != self.expected:
            problems.append(f"{self.expected} objects were deposited, and the record has {len(states)} jobs")
        others = {jid: state for jid, state in states.items() if state != "completed"}
        if others:
            problems.append(f"not completed: {others}")
        roots = list((self.place / "ocfl").rglob("0=ocfl_object_*")) or list(
            self.place.rglob("0=ocfl_object_*")
        )
        if len(roots) != len(completed):
            problems.append(f"{len(completed)} jobs completed, and storage has {len(roots)} objects")
        return problems


FAULTS_OF_A_HISTORY: dict[str, Callable[[History, Process], None]] = {
    "process killed": History.kill,
    "connection broken": History.break_off,
    "session expired": History.expire,
    "process frozen": History.freeze,
    "process frozen for longer than its session": History.freeze_long,
    "broker wiped": History.wipe,
    "broker away": History.stop_redis,
}


def replay(seed: int, faults: int = FAULTS, *, story: bool = False) -> Outcome:
    """Run the history of a seed."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with folder() as place:
        history = History(seed, place, faults)
        if story:
            history.world.story = []
        with patched(history.world):
            history.prepare()
            with replaced(history.site):
                history.start()
                try:
                    outcome = history.run()
                finally:
                    history.world.close()
        drop_engines(str(place))
        return outcome
