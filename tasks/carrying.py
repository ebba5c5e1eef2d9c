"""Which process begins the next state of a job: the one that has moved the job, or whichever takes a ticket.

Rule: a process continues with its job, with the record and the lock in hand, if it consumes the messages of
the next state's queue anyway. The ticket goes through Redis where the worker is stopping or drained, where
a shared service is unavailable, and before a long state where a more urgent message waits. A job
that has to wait (for space, its next try, a host) is handed back by its step, as ever.
"""

from collections.abc import Callable

import redis

from pipeline.records import Job
from pipeline.states import JOB, JobState, Queue
from tasks.broker import more_urgent
from tasks.logs import log
from tasks.run import Locked
from tasks.worker_context import WorkerContext
from zkstate import outages

LONG = frozenset(state for state in JOB.working() if JOB.task(state).queue in (Queue.DOWNLOAD, Queue.PROCESS))
"""States whose work may take hours; the others end in less time than a look into Redis is worth."""

Carry = Callable[[Locked[Job], JobState], bool]
"""Whether this process continues with its job in that state."""


def never(_locked: Locked[Job], _target: JobState) -> bool:
    return False


def carries(locked: Locked[Job], target: JobState) -> bool:
    """See the rule above; a job that goes back to an earlier state gets a ticket."""
    order, job, context = JOB.working(), locked.record, locked.context
    if target not in order or order.index(target) <= order.index(JobState(job.status.status)):
        return False
    queue = JOB.task(target).queue
    if not context.begins_next(queue) or outages.known(locked.session):
        return False
    return target not in LONG or not _is_urgent_work_waiting(context, job)


def _is_urgent_work_waiting(context: WorkerContext, job: Job) -> bool:
    queues = {JOB.task(state).queue for state in JOB.working()}
    served = [queue for queue in queues if context.begins_next(queue)]
    try:
        return more_urgent(context.settings, served, job.status.priority)
    except redis.RedisError as error:
        log().debug("urgency not compared: Redis does not answer", error=str(error))
        return False  # no message could be sent either
