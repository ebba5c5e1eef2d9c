"""The cost of keeping the state: jobs without content through the real tasks, against plain Celery chains.

The steps of the jobs do nothing. Both sides have one worker with the same settings and number of processes,
and use the same Redis. arkline's side also has ZooKeeper and a beat, and creates its jobs, feeds them, ends
and reports the batch, and cleans up; the other side has nothing but the chains.
"""

from functools import partial
from statistics import median

from benchmarks import _chain, _step_worker
from benchmarks._batches import create_and_complete
from benchmarks._chain import Configuration
from benchmarks._costs import figures, measured, spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import stack

AS_SHIPPED = Configuration.AS_SHIPPED
JOBS = option("JOBS", 300)
PROCESSES = 2
WARM_UP = 2
"""Warm-up rounds of both sides; ZooKeeper's JIT needs about 500 jobs."""

GOAL = 1.0
PACKETS = 20
"""Maximum packets to ZooKeeper per job."""


def main() -> None:
    use_two_cores()
    ours, theirs = [], []
    with stack() as own:
        where = machine(own)
        worker = _step_worker.worker(own.fleet, PROCESSES)
        beat = own.fleet.beat(wait=False)
        beside = _chain.worker(own.fleet, AS_SHIPPED, PROCESSES)
        fleet, chains = own.counted(worker=worker, beat=beat), own.counted(worker=beside)
        app = _chain.application(own.broker.url, AS_SHIPPED)
        live = partial(create_and_complete, own.session, own.settings)
        chained = partial(_chain.run, app)
        for warm_up in (live, chained):
            warm_up(max(2 * PROCESSES, WARM_UP * JOBS))  # compiles and imports, also in the servers
        for _ in range(ROUNDS):
            ours.append(measured(own.session, fleet, JOBS, partial(live, JOBS)))
            theirs.append(measured(own.session, chains, JOBS, partial(chained, JOBS)))
    ratios = [a.jobs_per_second / b.jobs_per_second for a, b in zip(ours, theirs, strict=True)]
    met = median(ratios) >= GOAL and median(c.packets_a_job for c in ours) <= PACKETS
    cpu = [a.cpu_ms / b.cpu_ms for a, b in zip(ours, theirs, strict=True)]
    goals = {
        "arkline_packets_a_job_goal": PACKETS,
        "cpu_ratio": round(median(cpu), 2),
        "cpu_ratio_range": spread(cpu),
    }
    sides = {**figures("arkline", ours), **figures("chain", theirs)}
    report("lifecycle", ratios, GOAL, met, {**goals, **sides, **where})


if __name__ == "__main__":
    run(main, __doc__)
