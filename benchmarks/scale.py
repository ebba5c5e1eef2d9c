"""The cost of the record with many waiting jobs: `ARKLINE_BENCH_JOBS` (10,000) against 1,000.

Each record has its own ZooKeeper with the shipped heap; every job has all its znodes. `ratio` divides the
moves per second in the one by those in the other, in turns. The periodic work is beat's, run in this process:
`feed` with room for jobs, then `feed` and `sweep` with nothing to do.
"""

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from benchmarks import _commands, moves
from benchmarks._costs import spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import option
from benchmarks._output import report, run
from benchmarks._packets import counters, received
from benchmarks._processes import peak_megabytes
from benchmarks._stack import Stack, stack
from pipeline.attempt import UNATTENDED
from pipeline.states import JOB
from tasks import stores
from tasks.app import make_context
from tests.support import planting
from zkstate.record import batches

FEW = option("FEW", 1_000)
JOBS = option("JOBS", 10_000)
ROUNDS = option("ROUNDS", 9)
"""Rounds of moves; a command is timed at most three times."""

MOVED = option("MOVED", 40)
"""Jobs that one measurement takes through all their states."""

COMMANDS = os.environ.get(
    "ARKLINE_BENCH_COMMANDS", "help,status,jobs,jobs_pending,why,status_of_batch"
).split(",")
GOAL = 0.9


@dataclass
class Record:
    """One ZooKeeper with its waiting jobs."""

    own: Stack
    jobs: int
    bid: str
    jid: str
    created_per_second: float
    moves_per_second: list[float] = field(default_factory=list)
    packets_a_move: float = 0

    def move(self) -> None:
        rate, self.packets_a_move = moves.measure(self.own.session, moves.fenced_life, MOVED)
        self.moves_per_second.append(rate * len(JOB.working()))


def filled(own: Stack, jobs: int) -> Record:
    stores.compare(own.session, own.settings)  # gives the three stores their deployment id
    start = time.perf_counter()
    batch = planting.acquired_batch(own.session)
    batch = planting.create_jobs(
        own.session, batch, planting.plan(jobs), own.settings.working, "benchmark", UNATTENDED
    )
    took = time.perf_counter() - start
    batches.finish_split(own.session, batch)
    return Record(own, jobs, batch.bid, batches.all_jobs(own.session, batch.bid)[0], jobs / took)


PERIODIC = (
    ("feed_64_jobs", "beat.feed"),
    ("idle_feed", "beat.feed"),
    ("first_sweep", "beat.sweep"),
    ("idle_sweep", "beat.sweep"),
)


def periodic_work(record: Record) -> dict[str, float]:
    """Milliseconds and packets of beat's tasks: with room for jobs, then with nothing to do.

    The first sweep dispatches the reports of the batches that the moves have ended.
    """
    session, context = record.own.session, make_context(record.own.settings)
    try:
        context.session()
        result = {}
        for title, task in PERIODIC:
            packets, start = received(session), time.perf_counter()
            context.app.tasks[task]()
            result[f"{title}_ms"] = round(1000 * (time.perf_counter() - start), 1)
            result[f"{title}_packets"] = received(session) - packets
        return result
    finally:
        context.drop_session()


def commands(record: Record) -> dict[str, float]:
    """Seconds of whole commands, each in its own process; `arkline --help` shows the cost of starting."""
    asked: dict[str, tuple[str, ...]] = {
        "help": ("--help",),
        "status": ("status",),
        "jobs": ("jobs",),
        "jobs_pending": ("jobs", "--state", "pending"),
        "why": ("why", record.jid),
        "status_of_batch": ("status", record.bid),
    }
    return {
        f"{name}_s": median(_commands.seconds(record.own.settings, *arguments) for _ in range(min(ROUNDS, 3)))
        for name, arguments in asked.items()
        if name in COMMANDS
    }


def figures(record: Record) -> dict[str, object]:
    server = counters(record.own.session)
    result = {
        "jobs": record.jobs,
        "moves_per_second": round(median(record.moves_per_second), 1),
        "moves_per_second_range": spread(record.moves_per_second),
        "packets_a_move": round(record.packets_a_move, 1),
        "jobs_created_per_second": round(record.created_per_second),
        **periodic_work(record),
        "znodes": int(server["zk_znode_count"]),
        "znode_data_mb": round(int(server["zk_approximate_data_size"]) / 1e6, 1),
        "zookeeper_peak_mb": round(peak_megabytes(record.own.zookeeper.process.pid)),
    }
    return {f"{name}_at_{record.jobs}": value for name, value in result.items()}


def main() -> None:
    use_two_cores()
    with ExitStack() as opened:
        few, many = (filled(opened.enter_context(stack()), jobs) for jobs in (FEW, JOBS))
        where = machine(many.own)
        for warm_up in (few, many):
            warm_up.move()
            warm_up.moves_per_second.clear()
        for _ in range(ROUNDS):
            few.move()
            many.move()
        result = {**figures(few), **figures(many), **commands(many)}
    ratios = [b / a for a, b in zip(few.moves_per_second, many.moves_per_second, strict=True)]
    report("scale", ratios, GOAL, median(ratios) >= GOAL, {**result, **where})


if __name__ == "__main__":
    run(main, __doc__)
