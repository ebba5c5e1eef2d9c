"""The cost of a whole job: real jobs of one small file on two cores, against no-op chains of Celery.

Each file has 10 kB, with declared digest and size, and comes from a source on loopback, in a process that is
not counted. arkline's side is the fleet that `./dev up` starts, without Flower: two workers with two
processes each and a beat; it is timed from the submission of a batch to the end of its report. The other side
is one worker with two processes. `ratio` divides the CPU of all processes per job by a chain's.
"""

import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import _chain, _source
from benchmarks._batches import complete_files
from benchmarks._costs import figures, measured, spread
from benchmarks._machine import machine, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._processes import children, peak_megabytes
from benchmarks._stack import stack

JOBS = option("JOBS", 200)
CHAINS = 3 * JOBS
"""Enough for a round of both sides to last seconds."""

WORKERS = option("WORKERS", 2)
PROCESSES = 2
GOAL = 2.2
WARM_UP = 2
"""Warm-up rounds; ZooKeeper's JIT needs about 500 jobs."""

RATE = 0.45
"""Minimum jobs per second for each chain per second."""

PACKETS = 45
"""Maximum packets to ZooKeeper per job."""

MEMORY = 120
"""Maximum peak memory of a worker process in megabytes."""


def main() -> None:
    use_two_cores()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name, _source.serving(Path(name)) as source, stack() as own:
        where = machine(own)
        workers = {f"worker_{n}": own.fleet.worker(f"w{n}", PROCESSES, wait=False) for n in range(WORKERS)}
        beat = own.fleet.beat(wait=False)
        beside = _chain.worker(own.fleet, _chain.Configuration.PLAIN, PROCESSES)
        fleet, chains = own.counted(**workers, beat=beat), own.counted(worker=beside)
        app = _chain.application(own.broker.url, _chain.Configuration.PLAIN)
        ingested = partial(complete_files, own.session, own.settings, source, Path(name))
        ingested(max(2 * WORKERS * PROCESSES, WARM_UP * JOBS))  # compiles and imports, also in the servers
        _chain.run(app, JOBS)
        for _ in range(ROUNDS):
            ours.append(measured(own.session, fleet, JOBS, partial(ingested, JOBS)))
            theirs.append(measured(own.session, chains, CHAINS, partial(_chain.run, app, CHAINS)))
        peaks = [peak_megabytes(pid) for worker in workers.values() for pid in children(worker.pid)]
    both = list(zip(ours, theirs, strict=True))
    cpu = [job.cpu_ms / chain.cpu_ms for job, chain in both]
    rates = [job.jobs_per_second / chain.jobs_per_second for job, chain in both]
    packets = median(job.packets_a_job for job in ours)
    met = median(cpu) <= GOAL and median(rates) >= RATE and packets <= PACKETS and max(peaks) <= MEMORY
    goals = {
        "worker_process_peak_mb": round(max(peaks)),
        "worker_process_peak_mb_goal": MEMORY,
        "jobs_per_second_ratio": round(median(rates), 3),
        "jobs_per_second_ratio_goal": RATE,
        "jobs_per_second_ratio_range": spread(rates),
        "arkline_packets_a_job_goal": PACKETS,
    }
    sides = {**figures("arkline", ours), **figures("chain", theirs)}
    report("ingest", cpu, GOAL, met, {**goals, **sides, **where})


if __name__ == "__main__":
    run(main, __doc__)
