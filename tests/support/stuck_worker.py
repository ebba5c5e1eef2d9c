"""A worker that never finishes a job: `python -m tests.support.stuck_worker JID STATE`.

It is the real task with the real lock and session; only the step never ends, so that it can be killed.
"""

import os
import sys
import threading
from pathlib import Path

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JobState, Queue
from pipeline.steps.context import StepContext
from tasks import job as path_of_a_job
from tasks.app import make_context
from zkstate import jobs, record


def _stuck(_job: Job, _services: StepContext) -> Done:
    Path(os.environ["ARKLINE_READY_FILE"]).touch()
    threading.Event().wait()
    raise AssertionError("nobody sets that event")


def main() -> None:
    """Do the real work of the states before STATE, then block in STATE."""
    jid, state = sys.argv[1], JobState(sys.argv[2])
    path_of_a_job.STEPS[state] = _stuck
    context = make_context(Settings())
    for queue in Queue:
        context.serve(queue)
    path_of_a_job.run_onward(context, record.ticket(jobs.load(context.session(), jid)))


if __name__ == "__main__":
    main()
