"""A worker that takes a job in some state and gets stuck there: `python -m tests.stuck_worker JID`.

It is the real task with the real lock and session; only the step never ends, so that it can be killed.
"""

import os
import sys
import threading
from pathlib import Path

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.services import Services
from tasks import job as path_of_a_job
from tasks.process import PROCESS
from zkstate import jobs


def _stuck(_job: Job, _services: Services) -> Done:
    Path(os.environ["ARKLINE_READY_FILE"]).touch()
    threading.Event().wait()
    raise AssertionError("nobody sets that event")


def main() -> None:
    job = jobs.load(PROCESS.session(), sys.argv[1])
    path_of_a_job.STEPS[job.status.status] = _stuck
    path_of_a_job.run(jobs.ticket(job))


if __name__ == "__main__":
    main()
