"""When work that failed is tried again, and when no more.

| fault | next try | last try |
|---|---|---|
| of the job, transient | `ARKLINE_BACKOFF` s, doubled each time, to BACKOFF_LIMIT | `ARKLINE_MAX_TRIES` |
| of a shared service | when the service works again: `tasks.outages` | none; an own fault counts as a try |
| a lost worker | after `zkstate.queue.recovery.GRACE`, doubled with each loss | `ARKLINE_MAX_REDISPATCHES` |
| a damaged znode | after BACKOFF_LIMIT | none |
| of the content | none | the first |
"""

import math

from pipeline.outcome import StepFailed
from pipeline.records import Batch, Job, now
from pipeline.settings import Settings

BACKOFF_LIMIT = 1800.0
"""Maximum seconds between two tries."""


def delay_before_retry(failure: StepFailed, tries: int, settings: Settings) -> float | None:
    """Seconds until the next try, if `tries` tries failed before this one; None if there is no next try.

    At least the time that the other service asked for. ZooKeeper's clock measures the delay.
    """
    if not failure.is_tried_again or tries + 1 >= settings.max_tries:
        return None
    delay: float = min(settings.backoff * 2**tries, BACKOFF_LIMIT)
    return max(delay, failure.retry_after or 0)


def hosts_given_up_after(record: Job | Batch, settings: Settings) -> float:
    """Seconds after which the record gives up a host that answers nobody: as its own tries would last.

    Infinite while it has not been in its state as long: others' faults cost it nothing before.
    """
    tries = range(settings.max_tries - 1)
    lasting: float = sum(min(settings.backoff * 2**number, BACKOFF_LIMIT) for number in tries)
    waited = (now() - record.status.since).total_seconds()
    return lasting if waited >= lasting else math.inf
