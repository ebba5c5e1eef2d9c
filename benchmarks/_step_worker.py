"""A worker with the real tasks, whose steps do nothing, or wait: `python -m benchmarks._step_worker`.

`ARKLINE_BENCH_STEP_MS`: milliseconds that each step waits, as if for a source or a disk.
"""

import sys
import time

from benchmarks._options import option
from entrypoints.stack.child import Process
from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.states import Event, JobState
from pipeline.steps.context import StepContext
from tasks import worker_program
from tasks.run import STEPS
from tests.support.fleet import Fleet

_SECONDS = option("STEP_MS", 0) / 1000


def _step(job: Job, _context: StepContext) -> Done:
    if _SECONDS:
        time.sleep(_SECONDS)
    return Done(event=Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED)


def worker(fleet: Fleet, processes: int, name: str = "worker") -> Process:
    """Start a worker; it may not be ready yet."""
    arguments = ("-c", str(processes), "-n", f"{name}@%h")
    return fleet.start(name, "-m", "benchmarks._step_worker", *arguments, wait=False)


if __name__ == "__main__":
    STEPS.update(dict.fromkeys(STEPS, _step))
    sys.exit(worker_program.main())
