"""Deposits without a pause into an inventory of ten million objects, beside the same into an empty one.

Real jobs of one file of 10 kB, in batches of 50 of several collections. The full side has an inventory in
PostgreSQL with `ARKLINE_BENCH_OBJECTS` objects of nine files and a storage root with
`ARKLINE_BENCH_STORED` of them; the other side begins with nothing. Both are on the same ZooKeeper, Redis and
PostgreSQL, each with its own fleet, and take turns of `ARKLINE_BENCH_BLOCK` seconds: while one of them has
jobs, the other has none. `--minutes`, or `ARKLINE_BENCH_MINUTES`, are those of each side. `ratio` divides the
jobs a second of the full side by those of the other, for each pair of turns, and `cpu_ratio` the CPU of fleet
and servers for a job, which says more on a machine with other work. Ended batches leave the record after a
quarter of the minutes (`retention_s`), with the scheduled clean-up.

At the end, each question of the scheduled work and of the pages is asked of the full inventory:
`questions_rows` and `questions_ms` have those that read more than 2,000 rows, or take more than 100 ms.

`ARKLINE_BENCH_FOLDER`: inventory and storage root stay there for later runs. Without it, there are 100,000
objects. PostgreSQL has to be installed.
"""

import os
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import _cloned_objects, _planted_deposits, _questions, _source
from benchmarks._batches import end_of, manifest_of
from benchmarks._costs import spread
from benchmarks._machine import host, use_two_cores
from benchmarks._options import option
from benchmarks._output import report, run
from benchmarks._processes import children, cpu_seconds, megabytes
from entrypoints.stack.child import Process
from pipeline.inventory.sql import open_inventory
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from tasks import stores
from tasks.broker import dispatch_batch, publisher
from tests.servers import redis, zookeeper
from tests.support.fleet import Fleet, fleet
from zkstate.care.deployment import join_missing
from zkstate.connection.session import Session, connect
from zkstate.queue import listings
from zkstate.record import batches, record

PLACE = os.environ.get("ARKLINE_BENCH_FOLDER", "")
OBJECTS = option("OBJECTS", 10_000_000 if PLACE else 100_000)
STORED = option("STORED", min(300_000, OBJECTS))
BLOCK = option("BLOCK", 180)
"""Seconds of one turn."""

MINUTES = option("MINUTES", 75)
JOBS = option("JOBS", 50)
"""Objects of one batch."""

AT_ONCE = 4
"""Batches that have not ended, so that the fleet never waits for the next one."""

COLLECTIONS = 5
WORKERS = option("WORKERS", 2)
PROCESSES = 2
GOAL = 0.8
LAST_QUARTER = 0.9
"""Minimum jobs a second of the last quarter of the full side's turns, by those of the first."""

LEAST = 12.0
"""Minimum objects a second in any turn of the full side: a million a day."""

FLAT = 1.1
"""Maximum memory and descriptors after the last turn, by those after the first quarter."""

MANY_ROWS = 2_000

PROFILE = """name: {name}
owner: ark:/99999/fk5owner
collections: ark:/99999/fk5{name}
naan: "99999"
shoulder: fk5
"""


@dataclass
class Side:
    """A deployment with its fleet."""

    settings: Settings
    session: Session
    own: Fleet
    profiles: Iterator[str]
    servers: Sequence[int]
    processes: list[Process] = field(default_factory=list)
    turns: list["Turn"] = field(default_factory=list)

    def start(self) -> None:
        started = [self.own.worker(f"w{n}", PROCESSES, wait=False) for n in range(WORKERS)]
        self.processes += [*started, self.own.beat(wait=False)]
        for process in self.processes:
            self.own.wait_ready(process)

    def drive(self, source: str, folder: Path, seconds: float) -> None:
        """Deposit without a pause for that long, and wait until all of it has ended."""
        pids = [*self.servers, *(one.pid for one in self.processes)]
        began, used, jobs, waiting = time.monotonic(), cpu_seconds(pids), 0, deque[str]()
        while waiting or time.monotonic() < began + seconds:
            while len(waiting) < AT_ONCE and time.monotonic() < began + seconds:
                waiting.append(self._deposit(source, folder))
            end_of(self.session, waiting.popleft())
            jobs += JOBS
        took, cpu = time.monotonic() - began, cpu_seconds(pids) - used
        own = [pid for one in self.processes for pid in (one.pid, *children(one.pid))]
        memory, descriptors = sum(map(megabytes, own)), sum(map(_descriptors, own))
        self.turns.append(Turn(jobs, jobs / took, 1000 * cpu / jobs, memory, descriptors))

    def _deposit(self, source: str, folder: Path) -> str:
        name = f"{uuid.uuid4().hex}.checkm"
        (folder / name).write_bytes(manifest_of(source, JOBS))
        submission = Submission(
            profile_name=next(self.profiles),
            submitter="tester",
            owner="token:tester",
            payload_url=f"{source}/{name}",
            type=SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
            payload_filename=name,
        )
        bid = batches.submit(self.session, submission)
        assert dispatch_batch(publisher(self.settings), record.ticket(batches.load(self.session, bid)))
        return bid


@dataclass(frozen=True)
class Turn:
    jobs: int
    jobs_a_second: float
    cpu_ms: float
    """For a job, of the fleet and the servers."""
    megabytes: float
    """Of all processes of the fleet."""
    descriptors: int


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> None:
    minutes = float(sys.argv[sys.argv.index("--minutes") + 1]) if "--minutes" in sys.argv else MINUTES
    use_two_cores()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise every process compiles what it imports
    with ExitStack() as opened:
        home = Path(PLACE or opened.enter_context(tempfile.TemporaryDirectory(prefix="endurance-")))
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o755)  # PostgreSQL's user passes it
        figures, ratios, met = measured(opened, home, minutes)
    report("endurance", ratios, GOAL, met, figures)


def measured(opened: ExitStack, home: Path, minutes: float) -> tuple[dict[str, Any], list[float], bool]:
    place = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=home)))
    place.chmod(0o755)
    source = opened.enter_context(_source.serving(place))
    began = time.monotonic()
    server = opened.enter_context(_planted_deposits.planted(home / "postgresql", OBJECTS))
    root = home / "ocfl"
    arks = (_planted_deposits.ark_of(number) for number in range(OBJECTS, OBJECTS - STORED, -1))
    _cloned_objects.clone(source, root, arks)
    planted = time.monotonic() - began
    common, servers = common_settings(opened, place, retention=max(1, int(15 * minutes)))
    servers.append(server.pid)
    stored: dict[str, dict[str, object]] = {
        "full": {"inventory_url": server.dsn("postgres"), "storage_root": root},
        "empty": {"inventory_url": server.new_database()},
    }
    sides = {
        name: side(opened, {**common, "home": place / name, **own}, name, servers)
        for name, own in stored.items()
    }
    for one in sides.values():
        one.start()
        one.drive(source, place, min(BLOCK, 60))  # compiles and imports, and fills the caches
        one.turns.clear()
    for turn in range(max(1, round(60 * minutes / BLOCK))):
        for one in sorted(sides.values(), key=lambda one: one.settings.zk_root, reverse=bool(turn % 2)):
            one.drive(source, place, BLOCK)
    figures, ratios, met = _compared(sides["full"], sides["empty"])
    return {"minutes": minutes, "planted_s": round(planted), **figures}, ratios, met


def _compared(full: Side, empty: Side) -> tuple[dict[str, Any], list[float], bool]:
    """Figures of both, and the jobs a second of the full side by those of the other."""
    rates = [turn.jobs_a_second for turn in full.turns]
    ratios = [own / turn.jobs_a_second for own, turn in zip(rates, empty.turns, strict=True)]
    cpu = [own.cpu_ms / turn.cpu_ms for own, turn in zip(full.turns, empty.turns, strict=True)]
    quarters, flat = _quarters(rates), _flat(full.turns)
    figures = {
        "objects": OBJECTS,
        "stored": STORED,
        "turn_s": BLOCK,
        "retention_s": full.settings.retention,
        "full_jobs_a_second": [round(rate, 1) for rate in rates],
        "empty_jobs_a_second": [round(turn.jobs_a_second, 1) for turn in empty.turns],
        "cpu_ratio": round(median(cpu), 3),
        "cpu_ratio_range": spread(cpu),
        "full_cpu_ms": round(median(turn.cpu_ms for turn in full.turns), 1),
        "empty_cpu_ms": round(median(turn.cpu_ms for turn in empty.turns), 1),
        "least_jobs_a_second": round(min(rates), 1),
        "least_goal": LEAST,
        "last_quarter": round(quarters, 2),
        "last_quarter_goal": LAST_QUARTER,
        **{f"full_{name}": value for name, value in flat.items()},
        "jobs": round(sum(turn.jobs for turn in full.turns)),
        "jobs_in_record": listings.recorded(full.session),
        **_asked(full.settings),
        **host(),
    }
    within = all(after <= FLAT * before for before, after in flat.values())
    met = median(ratios) >= GOAL and quarters >= LAST_QUARTER and min(rates) >= LEAST and within
    return figures, ratios, met


def common_settings(opened: ExitStack, place: Path, retention: int) -> tuple[dict[str, object], list[int]]:
    """The settings of both sides, with the same collections, and the ids of their servers."""
    record_server = opened.enter_context(zookeeper.running(place / "zookeeper", quick_start=False))
    messages = opened.enter_context(redis.running(place / "redis"))
    profiles = place / "profiles"
    profiles.mkdir()
    for name in names():
        (profiles / f"{name}.yaml").write_text(PROFILE.format(name=name))
    servers = [record_server.process.pid, messages.process.pid]
    return {
        "zk_hosts": record_server.hosts,
        "broker_url": messages.url,
        "profiles": profiles,
        "allow_networks": "127.0.0.0/8",
        "retention": retention,
        # the storage root has not all of the objects, so none shall be due
        "fixity_days": 3_650,
    }, servers


def names() -> list[str]:
    return [f"quay{number}" for number in range(COLLECTIONS)]


def side(opened: ExitStack, given: Mapping[str, object], name: str, servers: Sequence[int]) -> Side:
    settings = Settings.model_validate({**given, "zk_root": f"/{name}", "broker_prefix": f"{name}:"})
    session = opened.enter_context(connect(settings))
    join_missing(stores.stores_of(session, settings))  # the planted inventory belongs to no record yet
    own = opened.enter_context(fleet(settings, forked=False))
    return Side(settings, session, own, cycle(names()), servers)


def _quarters(rates: Sequence[float]) -> float:
    """The median of the last quarter of the turns by that of the first."""
    length = max(1, len(rates) // 4)
    return median(rates[-length:]) / median(rates[:length])


def _flat(turns: Sequence[Turn]) -> dict[str, tuple[float, float]]:
    """Memory and descriptors of the fleet, after the first quarter of the turns and after the last turn."""
    first, last = turns[(len(turns) - 1) // 4], turns[-1]
    return {
        "megabytes": (round(first.megabytes), round(last.megabytes)),
        "descriptors": (first.descriptors, last.descriptors),
    }


def _asked(settings: Settings) -> dict[str, object]:
    """The questions to the inventory that read many rows, or take long."""
    inventory = open_inventory(settings.inventory)
    asked = _questions.questions(_planted_deposits.known(max(1, OBJECTS // 2)))
    answers = dict(_questions.answers(inventory, asked))
    inventory.database.close()
    return {
        "questions": len(answers),
        "questions_rows": {name: one.rows for name, one in answers.items() if one.rows > MANY_ROWS},
        "questions_ms": {name: one.ms for name, one in answers.items() if one.ms > _questions.SLOW},
    }


if __name__ == "__main__":
    run(main, __doc__)
