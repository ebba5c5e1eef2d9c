"""Scaling with processes: 1, 2, 4 and 8 with steps that wait, and 8 with 2 ms more latency to ZooKeeper.

Every step of a job waits, as if for a source or a disk, and uses no CPU, so what remains is the cost of
keeping the state. `ratio` divides the jobs per second of the most processes by their number and by the rate
of one process: it is 1 if the processes do not slow each other down. All numbers of processes take turns.
"""

import time
from collections.abc import Sequence
from functools import partial
from statistics import median

from benchmarks import _step_worker
from benchmarks._batches import create_and_complete
from benchmarks._costs import Costs, figures, measured
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option, options
from benchmarks._output import report, run
from benchmarks._stack import Stack, stack
from entrypoints.stack.child import Process
from tests.servers.proxy import Proxy
from tests.support.fleet import Fleet, fleet
from zkstate.connection.session import Session, connect

PROCESSES = options("PROCESSES", (1, 2, 4, 8))
STEP_MS = option("STEP_MS", 100)
JOBS = option("JOBS", 8)
"""Jobs per process and round."""

DELAY = 0.002
"""Added latency of each ZooKeeper answer in a distant fleet, in seconds."""

GOAL = 0.8


def with_processes(own: Stack, workers: Fleet, beat: Process, processes: int) -> Costs:
    """The costs of a round with one worker of this many processes."""
    worker = _step_worker.worker(workers, processes)
    counted = own.counted(worker=worker, beat=beat)
    live = partial(create_and_complete, own.session, own.settings)
    live(processes)  # every process opens its session and clients
    jobs = JOBS * processes
    costs = measured(own.session, counted, jobs, partial(live, jobs))
    worker.terminate()
    worker.stop()
    return costs


def round_trip_ms(session: Session) -> float:
    took = []
    for _ in range(100):
        start = time.perf_counter()
        session.exists("/")
        took.append(time.perf_counter() - start)
    return round(1000 * median(took), 2)


def speed_ups(slower: Sequence[Costs], faster: Sequence[Costs]) -> list[float]:
    return [b.jobs_per_second / a.jobs_per_second for a, b in zip(slower, faster, strict=True)]


def main() -> None:
    use_two_cores()
    near: dict[int, list[Costs]] = {processes: [] for processes in PROCESSES}
    distant: list[Costs] = []
    with stack() as own, Proxy(own.zookeeper.port) as proxy:
        proxy.delay(DELAY)
        where = machine(own)
        far = own.settings.model_copy(update={"zk_hosts": proxy.hosts})
        with connect(far) as session:
            trips = {"near_ms": round_trip_ms(own.session), "distant_ms": round_trip_ms(session)}
        with fleet(far, forked=False) as away:
            for workers in (own.fleet, away):
                workers.extra["ARKLINE_BENCH_STEP_MS"] = str(STEP_MS)
            beat = own.fleet.beat(wait=False)
            for _ in range(ROUNDS):
                for processes, rounds in near.items():
                    rounds.append(with_processes(own, own.fleet, beat, processes))
                distant.append(with_processes(own, away, beat, PROCESSES[-1]))
    least, most = near[PROCESSES[0]], near[PROCESSES[-1]]
    ratios = [speed_up * PROCESSES[0] / PROCESSES[-1] for speed_up in speed_ups(least, most)]
    result: dict[str, object] = {
        "step_ms": STEP_MS,
        "speed_up": {n: round(median(speed_ups(least, near[n])), 2) for n in PROCESSES},
        "distant_jobs_per_second_by_near": round(median(speed_ups(most, distant)), 2),
        "zookeeper_round_trip": trips,
    }
    for processes, rounds in near.items():
        result |= figures(f"processes_{processes}", rounds)
    result |= figures("distant", distant)
    report("fleet", ratios, GOAL, median(ratios) >= GOAL, {**result, **where})


if __name__ == "__main__":
    run(main, __doc__)
