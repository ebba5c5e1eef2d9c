"""A worker that hangs in a library with each job of `hang.txt`: `-m tests.support.hanging_worker`.

The pattern keeps the interpreter's lock for ever, so that no thread of the process runs.
"""

import re
import sys

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.states import JobState
from pipeline.steps import process
from pipeline.steps.context import StepContext
from tasks import worker_program
from tasks.run import STEPS


def _hang(job: Job, context: StepContext) -> Done:
    if job.configuration.payload_name == "hang.txt":
        re.match("(a+)+$", "a" * 60 + "b")
    return process.work(job, context)


STEPS[JobState.PROCESSING] = _hang

if __name__ == "__main__":
    sys.exit(worker_program.main())
