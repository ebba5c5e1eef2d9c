"""A worker that never finishes a job: `python -m tests.support.stuck_worker JID STATE [after]`.

It is the real task with the real lock and session; only the step never ends, so that it can be killed. With
`after` the step does its work first: what it has done is there, and the job has not moved.
"""

import os
import sys
import threading
from functools import partial
from pathlib import Path

from pipeline.outcome import Done
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JobState, Queue
from pipeline.steps.context import StepContext
from tasks.app import make_context
from tasks.run import STEPS, Step
from tests.support.attempts import work_onward
from zkstate.record import jobs, record


def _stuck(_job: Job, _services: StepContext) -> Done:
    Path(os.environ["ARKLINE_READY_FILE"]).touch()
    threading.Event().wait()
    raise AssertionError("nobody sets that event")


def _stuck_after(work: Step, job: Job, services: StepContext) -> Done:
    work(job, services)
    return _stuck(job, services)


def main() -> None:
    """Do the real work of the states before STATE, then block in STATE."""
    jid, state, *after = sys.argv[1], JobState(sys.argv[2]), *sys.argv[3:]
    steps = STEPS
    steps[state] = partial(_stuck_after, steps[state]) if after else _stuck
    context = make_context(Settings())
    for queue in Queue:
        context.serve(queue)
    work_onward(context, record.ticket(jobs.load(context.session(), jid)))


if __name__ == "__main__":
    main()
